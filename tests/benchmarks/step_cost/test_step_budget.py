"""On a GPU, a step does no more than benchmarks/step_cost/budget.csv says."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from dpbench.benchmarks.step_cost import counted, report
from dpbench.benchmarks.step_cost.cases import STEP
from dpbench.benchmarks.step_cost.command import bench
from dpbench.benchmarks.step_cost.contenders import CONTENDERS

from dpbench.step.mechanism import step as private_step

ROOT = Path(__file__).parents[3]
FILE = ROOT / "benchmarks" / "step_cost" / "budget.csv"
BUDGET = report.read(FILE)
CASES = {case.name: case for case in STEP["counted"]}
QUICK = ("dutch_logistic", "adult_mlp", "scattering_cnn")
ALLOWED = {"kernels": 1, "calls": 1, "waits": 1, "bytes": 1.02, "peak": 1.02}
COUNT_AGAIN = (
    "If it must, give the reason in the commit, and count again: dpbench bench device=counted "
    "contender=ours_ghost out=FOLDER; cp FOLDER/step_counted.csv benchmarks/step_cost/budget.csv"
)
PINNED = re.search(r"^torch==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
pinned_torch = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != PINNED or not find_spec("triton"),
    reason=f"the budget is of torch {PINNED} with Triton",
)
costs = [name for name in counted.COSTS if name in ALLOWED]


def by_operation(data, case, contender):
    chosen = data[(data["case"] == case) & (data["contender"] == contender)]
    reasons = {*chosen["reason"]} - {""}
    assert not reasons, f"{case}, {contender} cannot be counted: {reasons}"
    return chosen.set_index("operation")[costs]


def excess(case, contender="ours_ghost"):
    """What a step does beyond its budget, and by which operations; "" if nothing."""
    now = counted.rows(CASES[case], {contender: CONTENDERS[contender]})
    now, before = (by_operation(data, case, contender) for data in (now, BUDGET))
    added = now.sub(before, fill_value=0)
    return "; ".join(
        f"{case}, {contender}: {cost} {before[cost].sum():.0f} -> {now[cost].sum():.0f} ("
        + ", ".join(f"{name} {more:+.0f}" for name, more in added[cost].items() if more > 0)
        + ")"
        for cost, factor in ALLOWED.items()
        if now[cost].sum() > factor * before[cost].sum()
    )


@pytest.mark.sampled(3)
@pinned_torch
@pytest.mark.slow
@pytest.mark.parametrize("contender", ["plain", "ours_ghost"])
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.long) for c in CASES]
)
def test_a_step_keeps_to_its_budget(case, contender):
    more = excess(case, contender)
    assert not more, f"{more}. {COUNT_AGAIN}"


def test_the_budget_is_of_all_cases_and_the_pinned_torch():
    assert [*BUDGET["case"].unique()] == [*CASES]
    assert all(f"torch {PINNED}" in line for line in BUDGET["environment"].unique())
    assert COUNT_AGAIN.count(str(FILE.relative_to(ROOT))) == 1


KERNELS, CALLS = by_operation(BUDGET, "dutch_logistic", "ours_ghost")[["kernels", "calls"]].sum()

PLANTED = {
    "a kernel": (lambda factors: factors.sin(), f"kernels {KERNELS} -> {KERNELS + 1} (sin +1)"),
    "a call": (lambda factors: factors.unsqueeze(0)[0], "(select +1, unsqueeze +1)"),
    "a wait": (lambda factors: (factors.sum().item(), factors)[1], "_local_scalar_dense +1"),
    "bytes": (lambda factors: factors.repeat(100_000)[: len(factors)], "repeat +102401024"),
}


def plant(monkeypatch, change):
    real = private_step.finite_factors

    def changed(*arguments):
        factors, finite = real(*arguments)
        return change(factors), finite

    monkeypatch.setattr(private_step, "finite_factors", changed)


@pytest.mark.sampled(2)
@pinned_torch
@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_in_a_step_is_named(planted, monkeypatch):
    change, sentence = PLANTED[planted]
    plant(monkeypatch, change)
    assert sentence in excess("dutch_logistic")


@pytest.mark.slow
def test_a_step_that_cannot_be_counted_fails_with_the_operation(monkeypatch):
    plant(monkeypatch, lambda factors: factors[factors > 0])
    with pytest.raises(AssertionError, match=r"aten\.nonzero"):
        excess("dutch_logistic")


DECIDED = {  # by counted.gpu_decisions, or the same on both
    *("gradients/backward.py", "gradients/engine.py", "gradients/factored.py"),
    *("gradients/layers/patches.py", "gradients/logistic.py", "gradients/norms.py"),
    *("gradients/perturbed.py", "gradients/position_norms.py", "gradients/precision.py"),
    *("gradients/products.py", "gradients/rows/check.py"),
    "mechanism/draws.py",
    *("mechanism/graph_step.py", "mechanism/noise.py", "mechanism/streams.py"),
}


def test_every_decision_by_the_device_is_known_to_the_count():
    folder = ROOT / "dpbench" / "step"
    asks = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"device\.type|is_cuda|isinstance\(\w+, GpuStream", path.read_text())
    }
    assert asks == DECIDED, "see to it that counted.gpu_decisions takes the GPU's branch there"


@pytest.mark.slow
def test_the_command_writes_numbers_and_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.grad_sample.utils", None)
    chosen = ("case=dutch_logistic", "contender=ours_ghost,opacus_hooks")
    bench(["device=counted", *chosen, f"out={tmp_path}"])
    assert {path.name for path in tmp_path.iterdir()} == {"step_counted.csv", "step_counted.md"}
    printed = capsys.readouterr().out
    assert printed.strip() == (tmp_path / "step_counted.md").read_text().strip()
    assert re.search(rf"^\| dutch_logistic, ours_ghost \| {KERNELS} \| {CALLS} \|", printed, re.M)
    assert re.search(r"^\| dutch_logistic, opacus_hooks \| not installed", printed, re.M)
