"""The rooms of the library: few, named in docs/README.md, and importing downwards only."""

import ast
import re
from pathlib import Path

import pytest

import dpbench

PACKAGE = Path(dpbench.__file__).parent
MOST_ROOMS = 28
DOCS = PACKAGE.parent / "docs" / "README.md"


def rooms() -> set[str]:
    names = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))
    }
    return {name for name in names if not name.startswith("__")}


def floors() -> list[list[str]]:
    """The rooms by floor, the highest first, as the picture in docs/README.md has them."""
    (picture,) = re.findall(r"```text rooms\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return [line.split("  ")[0].split() for line in picture.splitlines() if line.strip()]


def imports(path: Path) -> set[str]:
    """The rooms that a module imports from, at its top or within a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("dpbench.")}
    return found & rooms()


def climbs(order: dict[str, int]) -> list[str]:
    """Imports from a room that is not below the importing one."""
    return [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (room := path.relative_to(PACKAGE).parts[0].removesuffix(".py")) in order
        for other in sorted(imports(path) - {room})
        if order[other] >= order[room]
    ]


def test_there_are_few_rooms_and_the_picture_has_each_once():
    pictured = [room for floor in floors() for room in floor]
    assert sorted(pictured) == sorted(rooms())
    assert len(pictured) <= MOST_ROOMS


@pytest.mark.slow
def test_no_import_goes_up_or_to_the_same_floor():
    order = {room: -number for number, floor in enumerate(floors()) for room in floor}
    assert climbs(order) == []


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [("gradients", "mechanism"), ("system", "cli")])
def test_a_room_moved_above_one_that_uses_it_would_be_found(low, high):
    order = {room: -number for number, floor in enumerate(floors()) for room in floor}
    order[low], order[high] = order[high], order[low]
    assert climbs(order)


def test_only_config_imports_hydra():
    found = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) (hydra|omegaconf)\b", path.read_text(), re.MULTILINE)
    }
    assert found == {"config"}
