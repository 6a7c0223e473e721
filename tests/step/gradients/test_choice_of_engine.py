"""Which engine is used, and for what reason."""

import warnings
from types import MethodType

import pytest
import torch
from dpbench.benchmarks.step_cost.cases import from_conf
from torch import nn
from torch.nn.functional import linear
from torch.nn.utils import prune

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import ENGINES, EngineFallback, layers, make_engine
from dpbench.system.errors import UserError
from tests.step.gradients.nets import Net


def labelled(inputs: torch.Tensor, classes: int = 3) -> Batch:
    targets = torch.arange(len(inputs)) % classes
    return Batch(inputs, targets, torch.zeros_like(targets))


class Twice(Net):
    def forward(self, x):
        return self.two(self.one(self.one(x)))


class Functional(Net):
    def forward(self, x):
        return linear(self.one(x), self.two.weight, self.two.bias)


class Also(Net):
    """The weight is used by its module and once more: seen, but not all of it."""

    def forward(self, x):
        return self.two(self.one(x)) + linear(x, self.two.weight)


class Patched(Net):
    """A module of a type with a rule computes something else."""

    def __init__(self):
        super().__init__()
        self.two.forward = MethodType(lambda m, x: linear(x, 2 * m.weight, m.bias), self.two)


class ByName(Net):
    def forward(self, x):
        return self.two(input=self.one(x))


class Folded(Net):
    """Halves of an input become rows of their own."""

    def forward(self, x):
        return super().forward(x.view(-1, 4)).view(len(x), -1, 3).sum(1)


class Tied(Net):
    def __init__(self):
        super().__init__()
        self.two = nn.Linear(4, 4)
        self.two.weight = self.one.weight


class Renormed(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.table = nn.Embedding(7, 3, **options)

    def forward(self, x):
        return self.table(x).sum(1)


FALLBACKS = {
    "weights are tied": Tied,
    "used more than once": Twice,
    "parameters are used without calling the module": Functional,
    "used without calling the module": Also,
    "keyword arguments": ByName,
    "first axis of a module": Folded,
    "disagrees with the reference": Patched,
    "scale_grad_by_freq": lambda: Renormed(scale_grad_by_freq=True),
}


def probe_for(model: nn.Module, examples: int = 2) -> Batch:
    draw = torch.Generator().manual_seed(0)
    if isinstance(model, Renormed):
        return labelled(torch.tensor([[0, 1], [2, 3], [4, 5]][:examples]))
    width = 8 if isinstance(model, Folded) else 4
    return labelled(torch.rand(examples, width, generator=draw))


@pytest.mark.parametrize("reason", FALLBACKS)
def test_ghost_gives_way_to_vmap_with_one_warning_that_says_why(reason):
    model = FALLBACKS[reason]()
    with pytest.warns(EngineFallback, match=reason) as seen:
        engine = make_engine("ghost", model, cross_entropy, probe_for(model))
    assert engine.name == "vmap"
    assert len(seen) == 1


@pytest.mark.parametrize("reason", FALLBACKS)
def test_auto_gives_way_in_silence_and_stays_right(reason):
    model = FALLBACKS[reason]()
    fast = make_engine("auto", model, cross_entropy, probe_for(model))
    assert fast.name == "vmap"
    assert reason in fast.reason
    loop = make_engine("loop", model, cross_entropy, probe_for(model))
    batch = probe_for(model, 3)
    assert torch.allclose(fast(batch).stack().double(), loop(batch).stack(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["auto", "ghost"])
def test_ghost_is_used_where_it_can_be(name):
    assert make_engine(name, Net(), cross_entropy, probe_for(Net())).name == "ghost"


SHAPES = {
    **dict.fromkeys(("cnn_tanh", "sample_convnet"), (1, 28, 28)),
    **dict.fromkeys(("tempered_cnn", "resnet9_w8", "wrn16_4"), (3, 32, 32)),
}


@pytest.mark.long
@pytest.mark.parametrize("model", SHAPES)
def test_the_choice_is_no_matter_of_the_seed(model):
    """Of the initial weights, and of the probe: ghost for each of twenty."""
    architecture, shape = from_conf("model", model, {}), SHAPES[model]
    for seed in range(20):
        torch.manual_seed(seed)
        network = architecture.build(shape, 10)
        probe = labelled(torch.rand(2, *shape))
        assert make_engine("auto", network, cross_entropy, probe).name == "ghost", seed


def test_tied_weights_that_are_frozen_are_no_obstacle():
    model = nn.Sequential(Tied().requires_grad_(False), nn.Linear(4, 3))
    fast, loop = (
        make_engine(name, model, cross_entropy, probe_for(model)) for name in ("auto", "loop")
    )
    assert fast.name == "ghost"
    batch = probe_for(model, 5)
    torch.testing.assert_close(fast(batch).norms.double(), loop(batch).norms, rtol=1e-4, atol=0)


def test_a_module_frozen_as_a_whole_is_no_obstacle():
    model = Net()
    model.one.requires_grad_(False)
    engine = make_engine("auto", model, cross_entropy, probe_for(model))
    assert engine.name == "ghost"
    assert engine(probe_for(model)).stack().shape == (2, 4 * 3 + 3)


@pytest.mark.parametrize("name", ENGINES)
def test_a_module_that_is_never_used_has_no_gradient(name):
    model = nn.Sequential(nn.Linear(4, 3))
    model.add_module("spare", nn.Identity())
    model.spare.add_module("layer", nn.Linear(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineFallback)
        engine = make_engine(name, model, cross_entropy, probe_for(model))
    assert not engine(probe_for(model)).stack()[:, 15:].any()


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4)])
def test_batch_normalisation_is_refused_by_name(name, layer):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(layer), nn.Linear(4, 3))
    with pytest.raises(UserError, match=r"1\.0 \(.*BatchNorm.*mixes the examples.*GroupNorm"):
        make_engine(name, model, cross_entropy, probe_for(model))


class CentredInputs(Net):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class CentredOutputs(Net):
    def forward(self, x):
        y = super().forward(x)
        return y - y.mean(0)


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
@pytest.mark.parametrize("model", [CentredInputs, CentredOutputs])
def test_a_model_that_mixes_examples_is_refused(name, model):
    with pytest.raises(UserError, match="depends on the other examples of its batch"):
        make_engine(name, model(), cross_entropy, probe_for(Net()))


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
def test_a_loss_that_mixes_examples_is_refused(name):
    def centred(outputs, targets):
        losses = cross_entropy(outputs, targets)
        return losses - losses.mean()

    with pytest.raises(UserError, match="depends on the other examples of its batch"):
        make_engine(name, Net(), centred, probe_for(Net()))


class InFloat32(nn.Linear):
    """Computes in float32 whatever its inputs are."""

    def forward(self, x):
        return super().forward(x.float())


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
def test_a_model_without_float64_cannot_be_checked(name):
    model = InFloat32(4, 3)
    with pytest.raises(UserError, match=r"fails in float64, .* in the type of its inputs"):
        make_engine(name, model, cross_entropy, Batch(torch.rand(2, 4), *2 * [torch.arange(2)]))


class Broken(nn.Linear):
    """Has the wrong size, in evaluation alone."""

    def forward(self, x):
        return super().forward(x if self.training else x[:, :2])


def test_unknown_engines_and_other_failures_than_float64_are_told():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        make_engine("auto", Broken(4, 3), cross_entropy, probe_for(Net()))
    with pytest.raises(UserError, match="engine=goast is unknown: did you mean ghost"):
        make_engine("goast", Net(), cross_entropy, probe_for(Net()))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize(
    "changed", [nn.utils.weight_norm, lambda layer: prune.l1_unstructured(layer, "weight", 0.5)]
)
def test_a_weight_that_is_kept_from_one_pass_to_the_next_is_refused(changed):
    net = nn.Sequential(changed(nn.Linear(4, 4)), nn.Linear(4, 3))
    with pytest.raises(UserError, match=r"0\.weight \(Linear\) is kept from one pass to the next"):
        make_engine("auto", net, cross_entropy, probe_for(Net()))


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
def test_a_compiled_model_is_refused(name):
    inside = Net()
    inside.one.compile(backend="eager")
    for model, what in ((torch.compile(Net(), backend="eager"), "the model"), (inside, "one")):
        with pytest.raises(UserError, match=f"^{what} is compiled by torch.compile"):
            make_engine(name, model, cross_entropy, probe_for(Net()))


def test_the_check_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3)).train()
    before = [p.detach().clone() for p in model.parameters()]
    make_engine("auto", model, cross_entropy, probe_for(Net()))
    assert model.training
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_a_wrong_rule_is_noticed_at_the_probe(monkeypatch):
    right = layers.rules.RULES[nn.Linear]

    def ten_percent_off(call):
        return right.gradients(call._replace(a=1.1 * call.a))

    wrong = right._replace(gradients=ten_percent_off)
    monkeypatch.setitem(layers.rules.RULES, nn.Linear, wrong)
    with pytest.warns(EngineFallback, match="disagrees with the reference"):
        assert make_engine("ghost", Net(), cross_entropy, probe_for(Net())).name == "vmap"
