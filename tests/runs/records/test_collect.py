"""Records of several files as one mapping."""

from dpbench.runs.records.collect import TableRecords
from tests.runs.records.plain_record import PLAIN, record


def test_files_of_records_are_only_read_while_a_run_is_in_none_before_them(tmp_path):
    own, later = tmp_path / "tiny.records.jsonl", tmp_path / "later.records.jsonl"
    first, second = (record(config=PLAIN | {"seed": seed}) for seed in (0, 1))
    own.write_text(f"{first.json()}\n")
    stored = TableRecords([own, later])
    assert stored.get(first.digest).digest == first.digest
    later.write_text(f"not a record\n{second.json()}\n")
    assert stored.get(second.digest).digest == second.digest
    assert stored.get("0" * 16) is None
