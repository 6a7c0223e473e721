"""Lemma 3 of Knolle et al. (bam), and what they conclude of it."""

from pathlib import Path

import pytest
import torch
from dpbench.benchmarks.bam.flatness import (
    AWARE,
    PLAIN,
    DescentResult,
    FlatnessSettings,
    descend,
    gap_of,
    sharpness_of,
    verdicts,
)
from dpbench.benchmarks.calibration.linear import Examples

from dpbench.comparison.reproduce.command import reproduce
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.step.gradients.engine import MaterialisedGradients

SETUP = FlatnessSettings(examples=6, lr=0.1, steps=40, weight=0.5)


def test_the_gap_is_that_of_the_two_objectives():
    rows = torch.tensor([[3.0, 4.0], [3.0, -4.0]], dtype=torch.float64)
    gradients = MaterialisedGradients(torch.tensor([1.0, 3.0], dtype=torch.float64), rows, ())
    bias_aware, flat = 2 + 0.1 * 5, 2 + 0.1 * 3
    assert gap_of(gradients, 0.1) == pytest.approx((bias_aware - flat) / bias_aware)


def test_gradients_of_one_direction_have_no_gap_and_others_have_one():
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        rows = torch.randn(5, 3, generator=draw, dtype=torch.float64)
        assert gap_of(MaterialisedGradients(torch.ones(5).double(), rows, ()), 1.0) > 0
    along = torch.outer(torch.rand(5, generator=draw).double(), rows[0])
    assert gap_of(MaterialisedGradients(torch.ones(5).double(), along, ()), 1.0) == pytest.approx(
        0, abs=1e-15
    )


def test_sharpness_is_the_largest_eigenvalue_that_follows_by_hand():
    """The mean of (w x - y)^2 has the Hessian 2/n X'X: of X'X = [5 4; 4 5] it is 9."""
    made = Examples([[1.0, 2.0], [2.0, 1.0]], [4.0, -4.0])
    assert sharpness_of(made.network(), made.batch()) == pytest.approx(9)


def test_verdicts_can_fail():
    flat = DescentResult(AWARE, 0, 0.1, 0.0, 0.1, sharpness=1.0, gap=0.2)
    sharp = DescentResult(PLAIN, 0, 0.1, 0.0, 0.1, sharpness=2.0, gap=0.2)
    other = [flat._replace(seed=1, sharpness=3.0), sharp._replace(seed=1)]
    assert verdicts([flat, sharp]) == ("holds", "holds")
    assert verdicts([flat, sharp._replace(gap=-1e-3)])[0] == "fails"
    assert verdicts([flat, sharp, *other])[1] == "fails in 1 of 2 seeds"


@pytest.mark.slow
def test_the_bias_aware_descent_ends_with_shorter_gradients_of_examples():
    run = build(compose(["model.widths=[4]"]))
    ends = {m: descend(run, SETUP, m, Path("/nowhere"), 0) for m in (PLAIN, AWARE)}
    assert ends[AWARE].mean_norm < ends[PLAIN].mean_norm
    assert min(end.gap for end in ends.values()) > 0


@pytest.mark.slow
def test_the_target_says_both_verdicts(tmp_path):
    small = [
        *("dataset=digits", "model.widths=[4]", "table.seeds=[0]"),
        *("table.compute.examples=6", "table.compute.steps=5"),
    ]
    text = reproduce("bam_lemma3", [f"results_dir={tmp_path}", *small])
    assert "- Lemma 3, L_BAO is an upper bound of L_Z: holds.\n" in text
    assert "Our own runs, changed: dataset=digits" in text
    assert {p.suffix for p in (tmp_path / "tables").iterdir()} == {".md", ".csv", ".json"}
