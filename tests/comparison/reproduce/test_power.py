import re
import shutil

import pytest

from dpbench.comparison.reproduce.command import reproduce

SMALL = ["epochs=1", "table.seeds=[0,1,2]"]


def seeds(page):
    """The seeds of every undecided comparison, as text."""
    return re.findall(r"\| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)[2:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    reproduce("demo", [*SMALL, f"results_dir={made}"])
    return made


@pytest.mark.long
def test_more_power_takes_more_seeds_and_nothing_is_written(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    half, most = (
        reproduce("demo", [*SMALL, f"power={p}", f"results_dir={folder}"]) for p in ("0.5", "0.95")
    )
    assert half.splitlines()[0].endswith("seeds for a power of 50%")
    assert seeds(half), "three seeds of one epoch leave some comparison undecided"
    for fewer, more in zip(seeds(half), seeds(most), strict=True):
        assert "more than" in more or int(more) > int(fewer) > 3
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.slow
def test_the_records_of_a_table_measure_its_spread(folder, tmp_path):
    shutil.copytree(folder / "tables", tmp_path / "tables")
    page, ours = (
        reproduce("demo", [*SMALL, "power=0.5", f"results_dir={results}"])
        for results in (folder, tmp_path)
    )
    assert page == ours
