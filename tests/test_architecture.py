"""The rooms of the library: few, named in docs/README.md, and importing downwards only."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpbench
from dpbench.system.public_names import GROUPS

PACKAGE = Path(dpbench.__file__).parent
BENCHMARKS = PACKAGE.parent / "benchmarks"
MOST_FOLDERS, MOST_ROOMS = 9, 28
DOCS = PACKAGE.parent / "docs" / "README.md"


def folders(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir() if any(path.glob("*.py"))}


def rooms() -> set[str]:
    """The rooms, those of a group as GROUP.ROOM."""
    alone = folders(PACKAGE) - GROUPS.keys()
    return alone | {f"{group}.{room}" for group in GROUPS for room in folders(PACKAGE / group)}


def floors() -> list[list[str]]:
    """The rooms by floor, the highest first, as the picture in docs/README.md has them."""
    (picture,) = re.findall(r"```text rooms\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    parts = [line.split("  ")[0].rpartition(": ") for line in picture.splitlines() if line.strip()]
    return [[f"{group}.{n}" if group else n for n in names.split()] for group, _, names in parts]


def imported(path: Path) -> Iterator[str]:
    """The names that a module imports, at its top or within a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}".replace("..", ".") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(name: str) -> str:
    """The room of a module's real name below the library, `step.clipping.batch`."""
    group, _, rest = name.partition(".")
    return f"{group}.{rest.partition('.')[0]}" if group in GROUPS else group


def imports(path: Path) -> set[str]:
    """The rooms that a module imports from."""
    names = (name.removeprefix("dpbench.") for name in imported(path) if "dpbench." in name)
    return {room_of(name) for name in names} & rooms()


def climbs(order: dict[str, int]) -> list[str]:
    """Imports from a room that is not below the importing one."""
    return [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (room := room_of(".".join(path.relative_to(PACKAGE).parts[:-1]))) in order
        for other in sorted(imports(path) - {room})
        if order[other] >= order[room]
    ]


def test_the_library_is_a_sentence_of_few_folders_and_the_picture_has_each_room_once():
    assert {group: {*names} for group, names in GROUPS.items()} == {
        group: folders(PACKAGE / group) for group in GROUPS
    }
    pictured = [room for floor in floors() for room in floor]
    assert sorted(pictured) == sorted(rooms())
    assert len(pictured) <= MOST_ROOMS
    assert len(folders(PACKAGE)) <= MOST_FOLDERS


@pytest.mark.slow
def test_no_import_goes_up_or_to_the_same_floor():
    order = {room: -number for number, floor in enumerate(floors()) for room in floor}
    assert climbs(order) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high"), [("step.gradients", "step.mechanism"), ("system", "cli"), ("privacy", "audit")]
)
def test_a_room_moved_above_one_that_uses_it_would_be_found(low, high):
    order = {room: -number for number, floor in enumerate(floors()) for room in floor}
    order[low], order[high] = order[high], order[low]
    assert climbs(order)


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
        room_of(".".join(path.relative_to(PACKAGE).parts))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) (hydra|omegaconf)\b", path.read_text(), re.MULTILINE)
    }
    assert found == {"runs.config"}
