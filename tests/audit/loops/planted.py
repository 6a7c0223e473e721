"""The right loops of this folder, and each with one mistake of faults.yaml in it."""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from dpbench.audit.code.audited import Audited
from dpbench.audit.code.door import KINDS
from dpbench.audit.code.task import ClaimedDpsgd

FOLDER = Path(__file__).parent
FAULTS = yaml.safe_load((FOLDER / "faults.yaml").read_text(encoding="utf-8"))
LOOPS = sorted({*(path.stem for path in FOLDER.glob("*.py"))} - {"noise", "planted"})


def factory_of(loop: str, replaced: str = "", by: str = "") -> Any:
    """The factory of a loop, with one text replaced."""
    text = (FOLDER / f"{loop}.py").read_text(encoding="utf-8")
    assert not replaced or text.count(replaced) == 1, (loop, replaced)
    module = ModuleType(loop)
    exec(
        compile(text.replace(replaced, by) if replaced else text, f"{loop}.py", "exec"),
        vars(module),
    )
    return module.factory


def about(loop: str) -> str:
    """What a loop is, in a sentence."""
    text = (FOLDER / f"{loop}.py").read_text(encoding="utf-8")
    return text.partition('"""')[2].partition('"""')[0]


def audited(loop: str, replaced: str = "", by: str = "", **settings: Any) -> Audited:
    """A loop, with one text replaced, as the audit takes it. settings: of the claim, and a seed."""
    factory = factory_of(loop, replaced, by)
    seed = settings.pop("seed", 0)
    return KINDS[kind_of(factory)](loop, factory, ClaimedDpsgd(**settings), seed=seed)


def kind_of(factory: Any) -> str:
    """The setting of `dpbench audit` that takes a factory."""
    return "training" if inspect.isgeneratorfunction(factory) else "step"
