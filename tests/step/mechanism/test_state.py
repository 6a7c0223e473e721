"""What a clip has moved to is all of its state, and comes back as it was."""

import pytest
import torch

from dpbench.step.clipping import (
    Abadi,
    BatchClip,
    CountQuery,
    Global,
    Layerwise,
    NormalisedQuantile,
    Quantile,
    Unclipped,
    make_clip,
)
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.dpsgd_f import Groupwise
from dpbench.step.methods.dpsgd_global import GlobalAdapt
from dpbench.step.methods.slaclip import Slack

QUERY = CountQuery(10.0, before=False)
ADAPTIVE = {
    "groupwise": Groupwise(0.5, QUERY, published=False, groups=2),
    "global_adapt": GlobalAdapt(0.5, 5.0, 1.0, 0.1, QUERY),
    "quantile": Quantile(Abadi(0.5), 0.5, 0.2, QUERY),
    "quantile of global": Quantile(Global(0.5, 2.0), 0.5, 0.2, QUERY),
    "normalised": NormalisedQuantile(Abadi(0.5), 0.5, 0.2, QUERY, 2.5, 0.1),
    "slack": Slack(0.5, 1, 0.5, 0.5, 0.01, 50.0, QUERY),
    "quantile of layers": Quantile(make_clip("abadi", "layerwise", [0.3, 0.4]), 0.5, 0.2, QUERY),
}
COUNTS = {"groupwise": [3.0, 5.0, 2.0, 8.0], "quantile of layers": [3.0, -2.0]}
FIXED = [Abadi(1.0), BatchClip(1.0), Unclipped(1.0), Global(1.0, 2.0), Layerwise(Abadi(1.0))]


def behaviour(clip) -> list[torch.Tensor]:
    """All that a step sees of a clip."""
    norms = torch.linspace(0.1, 4, 6)
    if isinstance(getattr(clip, "clip", None), Layerwise):
        norms = norms.view(3, 2)
    groups = torch.arange(len(norms)) % 2
    sensitivity = torch.as_tensor(clip.sensitivity.bound)
    return [clip.factors(norms, groups), clip.counts(norms, groups), sensitivity]


def same(one, other) -> bool:
    return all(map(torch.equal, behaviour(one), behaviour(other)))


@pytest.mark.parametrize("name", ADAPTIVE)
def test_a_clip_that_answers_have_moved_comes_back_from_its_state(name):
    start = ADAPTIVE[name]
    moved = start.updated(torch.tensor(COUNTS.get(name, [4.0])), 8.0)
    moved = moved.updated(torch.tensor(COUNTS.get(name, [-3.0])), 8.0)
    back = restore_state(start, state_of(moved), torch.device("cpu"))
    assert not same(start, moved)
    assert same(back, moved)
    assert back.query == moved.query


@pytest.mark.parametrize("clip", [*FIXED, *ADAPTIVE.values()], ids=repr)
def test_before_any_answer_there_is_no_state(clip):
    assert state_of(clip) == {}
    assert restore_state(clip, {}, torch.device("cpu")) == clip
