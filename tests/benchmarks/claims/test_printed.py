"""The registry of printed epsilons: every row is well-formed, and what is not is refused."""

import csv
import io

import pytest
from dpbench.benchmarks.claims.printed import read_printed

from dpbench.privacy.entries import joint_entries
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from dpbench.system.paths import PACKAGE, benchmarks_folder

FOLDER = benchmarks_folder() / "claims"
PRINTED = {entry.id: entry for entry in read_printed(FOLDER / "claims.csv")}


def test_there_are_at_least_forty_and_all_four_papers_are_among_them():
    assert len(PRINTED) >= 40
    papers = {name.partition("-")[0] for name in PRINTED}
    assert {"misalignment", "bam", "calibration", "sign"} <= papers
    assert {entry.evidence for entry in PRINTED.values()} == {"verified", "assumed", "derived"}


@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_epsilon_has_a_setting_that_fits_together(name):
    entry = PRINTED[name]
    if not entry.is_complete:
        assert entry.note
        return
    assert entry.epsilon > 0
    assert entry.rate <= 1
    assert entry.steps * entry.rate > 0.99  # an epoch, but for a last part of a batch
    if entry.batch and entry.n:
        assert entry.rate == pytest.approx(entry.batch / entry.n, rel=0.02)
        assert entry.delta < 1.1 / entry.n  # 8e-7 is printed for 1,281,167
    assert entry.evidence == "assumed" or "assumed" not in entry.note


def test_every_printed_epsilon_of_our_papers_is_there():
    for paper in ("calibration", "misalignment"):
        text = (benchmarks_folder() / paper / "epsilon.csv").read_text()
        lines = io.StringIO("".join(x for x in text.splitlines(True) if not x.startswith("#")))
        for line in csv.DictReader(lines):
            found = {(c.printed, c.id) for c in PRINTED.values() if c.id.startswith(paper)}
            data = line["dataset"].partition("_")[0]
            assert any(line["epsilon"] == printed and data in name for printed, name in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("misalignment-dutch-dpsgd", ["+table=misalignment_table5", "method=dpsgd"]),
        ("misalignment-dutch-adapt", ["+table=misalignment_table5", "method=dpsgd_global_adapt"]),
        ("misalignment-celeba-dpsgd_f", ["+table=misalignment_table3", "method=dpsgd_f"]),
        ("calibration-wine", ["+table=calibration_fig10", "dataset=wine", "table.arm=small_r"]),
        ("sign-adult-0.25", ["+table=sign_table2", "privacy.noise_multiplier=0.25"]),
    ],
)
def test_an_epsilon_of_our_papers_has_the_setting_of_our_runs(name, run):
    method = [] if "+table=sign_table2" not in run else ["method=dp_signlosgd"]
    _, planned = prepare(run_config([*run, *method]))
    ((rate, joint, steps, *_),) = joint_entries(PRINTED[name].ledger)
    ((planned_rate, planned_joint, planned_steps, *_),) = joint_entries(planned.ledger)
    assert (rate, steps) == (pytest.approx(planned_rate), planned_steps)
    if isinstance(joint, float):
        assert joint == pytest.approx(planned_joint)
    else:
        assert joint == planned_joint


@pytest.mark.parametrize(
    ("column", "text", "says"),
    [
        ("steps", "many", "steps cannot be 'many'"),
        ("steps", "-3", "steps cannot be '-3'"),
        ("rate", "1/0", "rate cannot be '1/0'"),
        ("rate", "2", "the sampling rate at most 1"),
        ("printed", "", "printed cannot be ''"),
        ("printed", "-1.0", "printed cannot be '-1.0'"),
        ("delta", "1", "delta must be below 1"),
        ("noise_multiplier", "0", "noise_multiplier cannot be '0'"),
        ("sampler", "poison", "sampler"),
        ("evidence", "certain", "evidence"),
        ("accountant", "magic", "accountant"),
        ("mechanism", "laplace", "mechanism"),
        ("mechanism", "logistic_sign", "noise on each coordinate needs a dimension"),
        ("source", "", "a claim needs an id, a source"),
    ],
)
def test_a_row_that_is_not_well_formed_is_refused_by_line_and_column(column, text, says, tmp_path):
    rows = list(csv.DictReader((FOLDER / "claims.csv").read_text().splitlines()))[:3]
    rows[1][column] = text
    with pytest.raises(UserError, match=r"line 3: ") as refused:
        read_printed(written(tmp_path, rows))
    assert says in str(refused.value)


def test_an_id_twice_and_a_file_of_other_columns_are_refused(tmp_path):
    rows = list(csv.DictReader((FOLDER / "claims.csv").read_text().splitlines()))[:1]
    with pytest.raises(UserError, match="twice"):
        read_printed(written(tmp_path, rows * 2))
    with pytest.raises(UserError, match="must have the columns"):
        read_printed(FOLDER / "statements.csv")


def written(folder, rows):
    path = folder / "claims.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_every_statement_names_a_test_that_is_there():
    for line in csv.DictReader((FOLDER / "statements.csv").read_text().splitlines()):
        file, _, name = line["shown by"].partition("::")
        assert f"def {name}(" in (PACKAGE.parent / file).read_text()
