"""Outputs that are released, in a noisy score or through a fitted temperature, are those of each
example alone."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch, Data, Split
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.training.evaluation import evaluate
from dpbench.runs.training.temperature import LogitScaling
from dpbench.step.gradients import EngineFallback, make_engine


class ScaledForLarge(nn.Module):
    """Divides all inputs if one of them is above what a probe has."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(torch.where(x.amax() > 1, x / 255, x))


class ScaledByPython(ScaledForLarge):
    def forward(self, x):
        return self.layer(x / 255 if x.max() > 1 else x)


def examples(rare):
    """Six examples with values below 1, and a seventh that has a large one or does not."""
    inputs = torch.rand(7, 4, generator=torch.Generator().manual_seed(0))
    inputs[6, 0] = 300.0 if rare else 0.5
    return Split(inputs, torch.arange(7) % 3, torch.zeros(7, dtype=torch.long))


class Seen:
    """In the place of a private temperature: the examples that it is fitted on."""

    def fitted(self, examples, size, stream):
        self.examples = examples
        return LogitScaling(1)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize("model", [ScaledForLarge, ScaledByPython])
def test_a_rare_example_changes_no_output_of_another(model, engine, monkeypatch):
    monkeypatch.setattr("dpbench.training.evaluation.calibration_size_of", lambda dataset: 7)
    probe = Batch(torch.rand(2, 4), torch.tensor([0, 1]), torch.zeros(2, dtype=torch.long))
    made = make_engine(engine, model(), cross_entropy, probe)
    dataset = SimpleNamespace(task="classification", groups=("all",))
    seen = Seen()
    run = SimpleNamespace(dataset=dataset, temperature=seen, conformal=None, stream=None)
    outputs, logits = [], []
    for split in (examples(rare=False), examples(rare=True)):
        outputs.append(evaluate(run, made, Data(split, split, calibration=split))[0][:6])
        logits.append(seen.examples.inputs[:6])
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*logits)
