"""Models that torch cannot vectorise, or not as they are, are refused."""

import pytest
import torch
from torch import nn

from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import make_engine
from dpbench.system.errors import UserError
from tests.step.gradients.forwards import WIDTH
from tests.step.gradients.moved_rows import Composed, examples, seeded


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, which a branch needs
def test_a_branch_of_torch_is_refused():
    def chosen(module, h, x):
        return torch.cond(x.sum() > 9, lambda h: 2 * h, lambda h: 3 * h, (module(h),))

    model = seeded(lambda: Composed([chosen], False))
    with pytest.raises(UserError, match=r"torch cannot vectorise it .*engine=loop"):
        make_engine("auto", model, cross_entropy, examples(2, 0))


def test_a_spectral_norm_is_refused_for_what_it_does_to_weights():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, 3))
    with pytest.raises(UserError, match="spectral normalisation improves its estimate"):
        make_engine("auto", nn.Sequential(layer), cross_entropy, examples(2, 0))


class Vectorised(torch.autograd.Function):
    """Halves its input; the rule for batches does more if one example is large."""

    @staticmethod
    def forward(x):
        return x / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2

    @staticmethod
    def vmap(info, dims, x):
        return torch.where(x.amax() > 4, x / 9, x / 2), dims[0]


class Generated(Vectorised):
    generate_vmap_rule = True
    vmap = torch.autograd.Function.vmap


class Halved(nn.Linear):
    function = Vectorised

    def forward(self, x):
        return self.function.apply(super().forward(x))


def test_a_rule_for_batches_of_one_s_own_is_refused():
    batch = examples(2, 0)
    with pytest.raises(UserError, match="Vectorised has a vmap rule of its own"):
        make_engine("vmap", Halved(WIDTH, 3), cross_entropy, batch)
    engine = make_engine("vmap", nn.Linear(WIDTH, 3), cross_entropy, batch)
    with pytest.raises(RuntimeError, match="Vectorised has a vmap rule of its own"):
        engine.by_row(Halved(WIDTH, 3), batch.inputs)


def test_a_generated_rule_is_not(monkeypatch):
    monkeypatch.setattr(Halved, "function", Generated)
    assert make_engine("vmap", Halved(WIDTH, 3), cross_entropy, examples(2, 0)).name == "vmap"
