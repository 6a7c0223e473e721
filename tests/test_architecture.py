"""The rooms of the library: few, named in docs/README.md, and importing downwards only."""

import re
import runpy
from graphlib import CycleError
from pathlib import Path

import pytest

import dpbench
from dpbench.system.public_names import GROUPS

PACKAGE = Path(dpbench.__file__).parent
BENCHMARKS = PACKAGE.parent / "benchmarks"
MOST_FOLDERS, MOST_ROOMS = 9, 28
DOCS = PACKAGE.parent / "docs" / "README.md"


ROOMS = runpy.run_path(str(PACKAGE.parent / "scripts" / "rooms"))
imported, ordered, picture, rooms = (ROOMS[n] for n in ("imported", "ordered", "picture", "rooms"))


def folders(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir() if any(path.glob("*.py"))}


def test_the_library_is_a_sentence_of_few_folders_and_rooms():
    assert {group: {*names} for group, names in GROUPS.items()} == {
        group: folders(PACKAGE / group) for group in GROUPS
    }
    assert len(rooms()) <= MOST_ROOMS
    assert len(folders(PACKAGE)) <= MOST_FOLDERS


@pytest.mark.slow
def test_no_import_goes_up_and_the_picture_is_of_today():
    assert f"```text rooms\n{picture()}```" in DOCS.read_text(encoding="utf-8"), "run scripts/rooms"


def test_rooms_that_import_each_other_have_no_order():
    assert ordered({"a": {"b"}, "b": set(), "c": {"a"}}) == ["c", "a", "b"]
    with pytest.raises(CycleError):
        ordered({"a": {"b"}, "b": {"c"}, "c": {"a"}})


@pytest.mark.slow
def test_the_library_imports_modules_by_their_real_names_and_no_study():
    public = {f"dpbench.{room}" for names in GROUPS.values() for room in names}
    used = {
        (path.relative_to(PACKAGE).as_posix(), ".".join(name.split(".")[:2]))
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
    }
    assert not {(path, room) for path, room in used if room in public}
    # `dpbench challenge` is a command of a study, imported when it is asked for.
    assert {path for path, room in used if room == "dpbench.benchmarks"} == {"cli/commands.py"}


def test_a_study_uses_public_names_of_the_library_and_no_other_study():
    for path in BENCHMARKS.rglob("*.py"):
        for name in imported(path):
            parts = name.split(".")
            private = any(part.startswith("_") for part in parts[1:])
            # torch has no public names for fake tensors and dispatch modes
            assert name.startswith(".") or parts[0] == "torch" or not private, path
            assert parts[:2] not in (["dpbench", "benchmarks"], ["dpbench", "cli"]), path


def test_only_config_imports_hydra():
    found = {
        ".".join(path.relative_to(PACKAGE).parts[:2])
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) (hydra|omegaconf)\b", path.read_text(), re.MULTILINE)
    }
    assert found == {"runs.config"}
