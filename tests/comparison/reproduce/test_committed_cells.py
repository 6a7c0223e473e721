"""A committed cell of a table, trained again on the real data: the same run, the same numbers."""

import pytest

from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load, parse
from dpbench.system.paths import PACKAGE

COMMITTED = PACKAGE.parent / "results" / "tables" / "misalignment_table5.records.jsonl"
CELL = ["+table=misalignment_table5", "method=dpsgd_global_adapt", "seed=0", "threads=1"]


@pytest.mark.long
@pytest.mark.data
def test_a_cell_of_table_5_is_made_again(data_folder, tmp_path):
    again = load(
        load_or_run(run_config([*CELL, f"results_dir={tmp_path}", f"data_dir={data_folder}"]))
    )
    (committed,) = (
        record
        for line in COMMITTED.read_text(encoding="utf-8").splitlines()
        if (record := parse(line, COMMITTED.name)).digest == again.digest
    )
    assert again.privacy["ledger"] == committed.privacy["ledger"]
    # To the bit on the same processor; others add up in another order. Later versions add metrics.
    same = {name: again.metrics[name] for name in committed.metrics}
    assert same == pytest.approx(committed.metrics, rel=1e-4, nan_ok=True)
    assert again.history["train/loss"] == pytest.approx(committed.history["train/loss"], rel=1e-4)
