import re
import shutil

import pytest

from dpbench.comparison.reproduce.command import reproduce
from dpbench.system.errors import UserError

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
@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demo", "power=2"], "power must be a number between 0 and 1"),
        (["demo", "power=much"], "power must be a number between 0 and 1"),
        (["bam_lemma3", "power=0.5"], "bam_lemma3 makes no claims that seeds could decide"),
        (["demo", "power=0.5", "epochs=2"], "has no run of demo to measure a spread by"),
    ],
)
def test_what_has_no_spread_is_refused(folder, arguments, sentence):
    name, *settings = arguments
    with pytest.raises(UserError, match=sentence):
        reproduce(name, [*settings, f"results_dir={folder}"])
