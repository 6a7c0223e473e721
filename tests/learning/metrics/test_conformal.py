"""Prediction sets, against their definition by loops."""

import math

import pytest
import torch

from dpbench.learning.metrics.calibration import scores_of_truth, set_metrics

DRAW = torch.Generator().manual_seed(0)
OUTPUTS, TARGETS = 2 * torch.randn(60, 4, generator=DRAW), torch.arange(60) % 4
GROUPS = torch.arange(60) // 40  # of three, the last of which is empty


@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.8, 1.0])
def test_sets_are_the_classes_of_a_score_up_to_the_threshold(threshold):
    found = set_metrics(OUTPUTS, TARGETS, GROUPS, ("a", "b", "c"), threshold)
    covered, sizes = [], []
    for row, target in zip(OUTPUTS.double(), TARGETS.tolist(), strict=True):
        p = [math.exp(z) / sum(map(math.exp, row.tolist())) for z in row.tolist()]
        chosen = {k for k in range(4) if p[k] >= 1 - threshold - 1e-12}
        covered.append(target in chosen)
        sizes.append(len(chosen))
    shares = [sum(covered[:40]) / 40, sum(covered[40:]) / 20]
    assert found.pop("coverage") == pytest.approx(sum(covered) / 60)
    assert found.pop("set_size") == pytest.approx(sum(sizes) / 60)
    assert found.pop("worst_group_coverage") == pytest.approx(min(shares))
    assert [found.pop(f"coverage/{name}") for name in "ab"] == pytest.approx(shares)
    assert math.isnan(found.pop("coverage/c"))
    assert not found


def test_a_threshold_at_the_score_of_the_truth_covers_it():
    """Up to the last digit, as the threshold is chosen by these scores."""
    scores = scores_of_truth(OUTPUTS, TARGETS)
    for place, score in enumerate(scores.tolist()):
        row = (OUTPUTS[place : place + 1], TARGETS[place : place + 1], torch.zeros(1))
        assert set_metrics(*row, ("all",), score)["coverage"] == 1
        assert set_metrics(*row, ("all",), math.nextafter(score, 0))["coverage"] == 0
