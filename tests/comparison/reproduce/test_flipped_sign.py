"""A page says what its records say: with the sign of one gap in them, its sentences turn."""

from dataclasses import replace

import pytest

from dpbench.comparison.reproduce.render import texts
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.tables.sweep.command import table
from dpbench.runs.records.collect import readable_records_in
from dpbench.system.paths import PACKAGE
from tests.comparison.tables.sweep.made_up import record

COMMITTED = PACKAGE.parent / "results" / "tables"


def flipped(records, target: Target, row: str, than: str, metrics: list[str]):
    """The records with the gaps of a row's runs to those of another, by seed, turned round."""
    others = {r.config["seed"]: r for r in records if target.method_of(r.config) == than}
    for one in records:
        other = others[one.config["seed"]].metrics
        turned = {name: 2 * other[name] - one.metrics[name] for name in metrics}
        is_row = target.method_of(one.config) == row
        yield replace(one, metrics=one.metrics | turned) if is_row else one


def verdicts(page: str, *cells: str) -> list[str]:
    """The last cells of the rows of a page that begin with these."""
    begins = f"| {' | '.join(cells)} |"
    return [w.split(" | ")[-1].rstrip(" |") for w in page.splitlines() if w.startswith(begins)]


@pytest.mark.slow
def test_a_claim_of_a_committed_page_fails_if_its_gap_has_the_other_sign():
    target = target_of("misalignment_table5", [])
    path = COMMITTED / f"{target.name}.records.jsonl"
    records = readable_records_in(path)
    committed = (COMMITTED / f"{target.name}.md").read_text(encoding="utf-8")
    accuracies = [f"test/accuracy/{name}" for name in target.table.groups]
    turned = flipped(records, target, "dpsgd_global_adapt", "dpsgd", accuracies)
    page = texts(target, list(turned))["md"]
    compared = ("global_accuracy", "dpsgd_global_adapt", "dpsgd")
    assert verdicts(committed, *compared) == ["holds"]
    assert verdicts(page, *compared) == ["fails"]


@pytest.mark.parametrize(("sign", "verdict"), [(1, "better"), (-1, "worse")])
def test_a_verdict_of_dpbench_table_turns_with_the_sign(sign, verdict, tmp_path):
    for seed in range(4):
        for method, gap in (("dpsgd", 0.0), ("bam", 0.05 + 0.001 * seed)):
            record(method, seed=seed, value=0.8 + sign * gap).save(tmp_path)
    page = table([str(tmp_path), f"out={tmp_path / 't'}", "baseline=dpsgd"])
    (found,) = verdicts(page.partition("## Differences")[2], "BAM")
    assert f", {verdict}" in found
