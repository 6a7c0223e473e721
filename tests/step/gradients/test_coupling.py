"""Models that mix examples or remember them are refused, in whichever mode and place that shows."""

import re

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import ENGINES, make_engine
from dpbench.system.errors import UserError

COUPLED = r"depends on the other examples of its batch"


class Net(nn.Module):
    """Numbers [B, 4], or words [B, 4] by way of a table, to three classes."""

    def __init__(self, words: bool = False):
        super().__init__()
        self.table = nn.Embedding(9, 2) if words else None
        self.one, self.two = nn.Linear(8 if words else 4, 6), nn.Linear(6, 3)

    def between(self, x):
        return x

    def forward(self, x):
        x = x if self.table is None else self.table(x).flatten(1)
        return self.two(self.between(torch.tanh(self.one(x))))


def probe_for(model: nn.Module, examples: int = 2) -> Batch:
    draw = torch.Generator().manual_seed(0)
    if getattr(model, "table", None) is None:
        inputs = torch.rand(examples, 4, generator=draw)
    else:
        inputs = torch.randint(9, (examples, 4), generator=draw)
    targets = torch.arange(examples) % 3
    return Batch(inputs, targets, torch.zeros_like(targets))


# What mixes the examples of a batch.


class Standardised(Net):
    """As batch normalisation, without its name, and in training alone."""

    def between(self, x):
        return (x - x.mean(0)) / (x.std(0) + 1) if self.training else x


class Attending(Net):
    """Every example looks at all others, behind a gate that starts closed."""

    def __init__(self, words: bool = False):
        super().__init__(words)
        self.gate = nn.Parameter(torch.zeros(1))

    def between(self, x):
        return x + self.gate * ((x @ x.T).softmax(1) @ x)


class Detached(Net):
    """The batch's mean has no slope."""

    def between(self, x):
        return x - x.detach().mean(0) if self.training else x


class Noisy(Net):
    """Dropout before the examples are mixed."""

    def between(self, x):
        x = nn.functional.dropout(x, 0.2, self.training)
        return x - x.detach().mean(0) if self.training else x


class Sized(Net):
    """Only the size of the batch matters, in training."""

    def between(self, x):
        return x / len(x) if self.training else x


class Faint(Net):
    """Too little to see in a loss."""

    def between(self, x):
        return x + 1e-12 * x.mean(0) if self.training else x


class Crowded(Net):
    """Two examples alone are left apart."""

    def between(self, x):
        return x - x.detach().mean(0) if len(x) > 2 else x


class Routed(Net):
    """Each of two experts has room for four examples, those that come first."""

    def between(self, x):
        expert = nn.functional.one_hot((x[:, 0] > 0).long(), 2)
        place = (expert.cumsum(0) * expert).sum(1, keepdim=True)
        return torch.where(place <= 4, 2 * x, x)


class Various(Net):
    """Mixes where there are more than two different examples, however many copies there are."""

    def between(self, x):
        several = len(torch.unique(x.detach(), dim=0)) > 2
        return x - x.detach().mean(0) if several else x


MIXING = [
    *((kind, words)
      for kind in (Standardised, Attending, Detached, Noisy, Sized, Crowded, Routed, Various)
      for words in (False, True)),
    (Faint, False),
]  # fmt: skip


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
@pytest.mark.parametrize(("kind", "words"), MIXING)
def test_a_model_that_mixes_examples_in_training_or_later_is_refused(kind, words, name):
    model = kind(words)
    with pytest.raises(UserError, match=COUPLED):
        make_engine(name, model, cross_entropy, probe_for(model))


def test_a_loss_whose_weights_are_the_batch_s_is_refused():
    def balanced(outputs, targets):
        counts = nn.functional.one_hot(targets, 3).sum(0)
        return cross_entropy(outputs, targets) / counts[targets] * len(targets)

    model = Net()
    with pytest.raises(UserError, match=COUPLED):
        make_engine("auto", model, balanced, probe_for(model))


def test_users_that_look_at_each_other_are_refused(users_of):
    class OfUsers(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.gate = nn.Linear(5, 3), nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.one(x + self.gate * x.mean(0))

    with pytest.raises(UserError, match=COUPLED):
        make_engine("auto", OfUsers().double(), cross_entropy, users_of(2))


# What remembers examples from one pass to the next.


class Kept(Net):
    """A buffer holds the last batch's mean, and nothing reads it."""

    def __init__(self, words: bool = False):
        super().__init__(words)
        self.register_buffer("mean", torch.zeros(6), persistent=False)

    def between(self, x):
        if self.training:
            self.mean.copy_(x.detach().mean(0))
        return x


class Renewed(Kept):
    """The buffer is another tensor after each pass."""

    def between(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x


class Initialised(Net):
    """The first batch sets a parameter, as in activation normalisation."""

    def __init__(self, words: bool = False):
        super().__init__(words)
        self.scale = nn.Parameter(torch.ones(6))
        self.fresh = True

    def between(self, x):
        if self.training and self.fresh:
            self.fresh = False
            self.scale.data.copy_(1 / (x.detach().std(0) + 1))
        return x * self.scale


@pytest.mark.parametrize(
    ("kind", "what"), [(Kept, "mean"), (Renewed, "mean"), (Initialised, "scale")]
)
@pytest.mark.parametrize("words", [False, True])
def test_a_pass_that_changes_a_buffer_or_parameter_is_refused_by_name(kind, what, words):
    model = kind(words)
    with pytest.raises(UserError, match=rf"^{what} changes with every pass in training.*GroupNorm"):
        make_engine("auto", model, cross_entropy, probe_for(model))


class Remembering(Net):
    """A mean of batches that is no buffer, used in training."""

    def __init__(self, words: bool = False):
        super().__init__(words)
        self.mean = 0.0

    def between(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * float(x.detach().mean())
        return x - self.mean


class Later(Remembering):
    """The same, used in evaluation alone."""

    def between(self, x):
        moved = super().between(x)
        return x if self.training else moved


@pytest.mark.parametrize("kind", [Remembering, Later])
@pytest.mark.parametrize("words", [False, True])
def test_a_model_that_remembers_is_refused_wherever_it_does(kind, words):
    model = kind(words)
    with pytest.raises(UserError, match="as if the model remembered examples"):
        make_engine("auto", model, cross_entropy, probe_for(model))


class Overwriting(Net):
    def forward(self, x):
        return super().forward(x.clamp_(0, 0.1 if x.is_floating_point() else 8))


@pytest.mark.parametrize("words", [False, True])
def test_a_model_that_writes_over_its_inputs_is_refused(words):
    model = Overwriting(words)
    with pytest.raises(UserError, match="changes its inputs in place"):
        make_engine("auto", model, cross_entropy, probe_for(model))


# What does neither.


class Dropping(Net):
    """Whole examples are dropped at random, each by itself."""

    def between(self, x):
        if not self.training:
            return x
        return x * (torch.rand(len(x), 1, dtype=x.dtype) < 0.7)


class Ragged(Net):
    """As many random numbers as there are positive entries: another number for other examples."""

    def between(self, x):
        if not self.training:
            return x
        places = (x > 0).nonzero(as_tuple=True)
        return x.index_put(places, x[places] * torch.rand(len(places[0]), dtype=x.dtype))


class Caching(Net):
    """A constant is made in the first pass."""

    weights = None

    def between(self, x):
        if self.weights is None:
            self.weights = torch.linspace(0, 1, x.shape[1], dtype=x.dtype)
            self.register_buffer("lazy", self.weights)
        return x * self.weights.to(x)


class Watched(Net):
    """The last activations are there to be looked at."""

    def between(self, x):
        self.last = x.detach()
        return x


DROPOUTS = [nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.3), nn.RReLU()]


@pytest.mark.parametrize("layer", DROPOUTS, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("training", [True, False])
def test_dropout_of_each_example_by_itself_is_no_coupling(layer, training):
    model = nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 3)).train(training)
    make_engine("auto", model, cross_entropy, probe_for(model))


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("kind", [Dropping, Caching, Watched])
def test_models_that_keep_examples_apart_are_accepted(kind, words):
    model = kind(words)
    assert make_engine("auto", model, cross_entropy, probe_for(model)).name == "ghost"


def test_draws_that_depend_on_examples_hide_no_coupling_and_the_mode_is_said():
    # No engine but the reference can do without knowing that number beforehand.
    model = Ragged()
    make_engine("loop", model, cross_entropy, probe_for(model))
    with pytest.raises(UserError, match=COUPLED):
        make_engine("loop", Mixed(), cross_entropy, probe_for(Mixed()))
    with pytest.raises(UserError, match=re.escape("of its batch in training mode; make")):
        make_engine("auto", Standardised(), cross_entropy, probe_for(Net()))


class Mixed(Ragged):
    def between(self, x):
        return super().between(x) + 1e-9 * x.mean(0)


@pytest.mark.parametrize("training", [True, False])
def test_the_check_leaves_model_and_random_numbers_as_they_were(training):
    model = Dropping().train(training)
    model.register_buffer("constant", torch.ones(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    draws = torch.get_rng_state()
    make_engine("auto", model, cross_entropy, probe_for(model))
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.training == training
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(p.grad is None for p in model.parameters())
