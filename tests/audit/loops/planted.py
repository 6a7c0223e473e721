"""The right loops of this folder, and each with one mistake of faults.yaml in it."""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

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


def kind_of(factory: Any) -> str:
    """The setting of `dpbench audit` that takes a factory."""
    return "training" if inspect.isgeneratorfunction(factory) else "step"
