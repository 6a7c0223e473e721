"""What a rare example stores in a model or loss is not there for others."""

import warnings
from collections import Counter, defaultdict, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import EngineFallback, make_engine
from dpbench.step.gradients.kept import forgotten, named_tensors
from dpbench.system.errors import UserError

LARGE = 100.0
IN_PLACE = r"was changed in place by a pass over examples"


def examples(n, *large):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    x[list(large), 0] = 2 * LARGE
    return Batch(x, torch.arange(n) % 3, torch.zeros(n, dtype=torch.long))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        self.seen, self.number, self.all, self.by_name = False, torch.zeros(()), [], {}
        self.last = deque(maxlen=2)
        self.register_buffer("buffer", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        after = self.outputs(-x if self.has_seen() else x)
        self.keep(x.detach().amax())
        return after

    def outputs(self, x):
        return self.layers(torch.where((self.number + self.buffer + self.mean[0]) > 0, -x, x))

    def has_seen(self):
        return self.seen or self.all or self.by_name or self.last

    def keep(self, largest):
        raise NotImplementedError


class Flag(Net):
    def keep(self, largest):
        self.seen = self.seen or bool(largest > LARGE)


class Elements(Net):
    def keep(self, largest):
        if largest > LARGE:
            self.all.append(1)
            self.by_name["seen"] = True
            self.last.append(1)


class Renamed(Net):
    """Changes a key alone."""

    def __init__(self):
        super().__init__()
        self.flags = {"unseen": True}

    def has_seen(self):
        return "seen" in self.flags

    def keep(self, largest):
        if largest > LARGE and not self.has_seen():
            self.flags["seen"] = self.flags.pop("unseen")


class InObject(Net):
    """Stores in what is neither a module nor a list or dictionary."""

    def __init__(self):
        super().__init__()
        self.kept = self.made()

    def made(self):
        return SimpleNamespace(flags=SimpleNamespace(seen=False))

    def has_seen(self):
        return self.kept.flags.seen

    def keep(self, largest):
        if largest > LARGE:
            self.kept.flags.seen = True


class Counted(InObject):
    def made(self):
        return Counter()

    def has_seen(self):
        return self.kept["seen"]

    def keep(self, largest):
        self.kept["seen"] += int(largest > LARGE)


class CountedByDefault(Counted):
    def made(self):
        return defaultdict(int)


class Number(InObject):
    def made(self):
        return np.zeros(2)

    def has_seen(self):
        return self.kept[1] > 0

    def keep(self, largest):
        self.kept[1] += int(largest > LARGE)


class Byte(Number):
    def made(self):
        return bytearray(2)


class Mode(Net):
    def keep(self, largest):
        if largest > LARGE:
            self.eval()

    def has_seen(self):
        return not self.layers.training


class Attribute(Net):
    def keep(self, largest):
        self.number = torch.maximum(self.number, largest - LARGE)


class Buffer(Net):
    def keep(self, largest):
        self.buffer.add_((largest > LARGE).to(self.buffer))


class Data(Net):
    def keep(self, largest):
        self.buffer.data.add_((largest > LARGE).to(self.buffer))


class Inside(Net):
    """Changes a tensor in a container, without reading a value."""

    def __init__(self):
        super().__init__()
        self.tensors = {"largest": (torch.zeros(()),)}

    def outputs(self, x):
        return self.layers(torch.where(self.tensors["largest"][0] > 0, -x, x))

    def keep(self, largest):
        self.tensors["largest"][0].add_((largest > LARGE).to(torch.float32))


class Nested(Net):
    """Renews a tensor in a container that is in another, without reading a value."""

    def __init__(self):
        super().__init__()
        self.tensors = {"largest": [torch.zeros(())]}

    outputs = Inside.outputs

    def keep(self, largest):
        (before,) = self.tensors["largest"]
        self.tensors["largest"][0] = torch.maximum(before, largest - LARGE)


class Renewed(Net):
    def keep(self, largest):
        self.buffer = self.buffer + (largest > LARGE).to(self.buffer)


class Normalisation(Net):
    def keep(self, largest):
        if largest > LARGE:
            ones = torch.ones(2, 4).to(self.mean)
            nn.functional.batch_norm(ones, self.mean, torch.ones_like(self.mean), training=True)


class Weight(Net):
    def keep(self, largest):
        if largest > LARGE:
            with torch.no_grad():
                self.layers[0].bias.neg_()


UNDONE = (
    *(Flag, Elements, Renamed, Mode, Attribute, Renewed, Nested),
    *(InObject, Counted, CountedByDefault, Number, Byte),
)
REFUSED = (Buffer, Data, Normalisation, Weight, Inside)


def engine_of(name, model, loss=cross_entropy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineFallback)
        return make_engine(name, model, loss, examples(2))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ["auto", "loop"])
@pytest.mark.parametrize("kind", UNDONE)
@pytest.mark.parametrize("training", [False, True])
def test_what_a_pass_stores_is_forgotten(kind, name, training):
    engine = engine_of(name, kind())
    engine.model.train(training)
    right = engine(examples(6)).stack()
    for _ in range(2):
        assert torch.equal(engine(examples(6, 1)).stack()[2:], right[2:])
    outputs = engine.by_row(engine.model, examples(6).inputs)
    for _ in range(2):
        assert torch.equal(engine.by_row(engine.model, examples(6, 1).inputs)[2:], outputs[2:])


def run(make, by_row=False):
    engine = make()
    with torch.no_grad():
        engine.parameters.theta.fill_(9)
    if by_row:
        engine.by_row(engine.model, examples(6, 1).inputs)
    else:
        engine(examples(6, 1))


@pytest.mark.parametrize("name", ["auto", "loop"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_pass_writes_into_a_tensor_is_refused(kind, name):
    # The fast engine finds first that a weight is used outside its module.
    expected = "parameters are used|" + IN_PLACE if kind is Weight else IN_PLACE
    with pytest.raises(UserError, match=expected):
        run(lambda: engine_of(name, kind()))
    with pytest.raises(UserError, match=IN_PLACE):
        run(lambda: engine_of(name, kind()), by_row=True)


class Counting(nn.Module):
    """A loss that counts large outputs, for others to be weighed by."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, outputs, targets):
        losses = cross_entropy(outputs, targets) * (1 + self.count)
        with torch.no_grad():
            self.count += (outputs.amax() > LARGE).to(self.count)
        return losses


@pytest.mark.parametrize("name", ["auto", "loop"])
def test_a_loss_that_counts_is_refused(name):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    with pytest.raises(UserError, match=f"count {IN_PLACE}"):
        run(lambda: engine_of(name, model, Counting()))


def test_attributes_are_as_before_also_after_an_error():
    model = Elements()
    model.all = [1, 2]
    before = dict(vars(model))

    def failing():
        model.all.clear()
        model.other = model.number = 3
        model.register_buffer("third", torch.ones(1))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), forgotten(model):
        failing()
    assert model.all == [1, 2]
    assert vars(model).keys() == before.keys()
    assert model.number is before["number"]
    assert [name for name, _ in named_tensors(model)] == [
        *("buffer", "mean", "number"),
        *("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"),
    ]


def test_a_constant_of_inference_mode_is_no_obstacle():
    model = nn.Linear(4, 3)
    with torch.inference_mode():
        model.register_buffer("constant", torch.tensor([torch.nan, 1.0]))
    with forgotten(model, by_value=True):
        model(examples(2).inputs)


def test_a_set_is_the_same_in_any_order():
    """A copy of a set may have another order, and this is nothing that a pass stored."""
    module = nn.Identity()
    module.names = {*range(64)}
    module.names -= {*range(64)} - {1, 8, 9}
    assert [*module.names] != [*module.names.copy()]
    with forgotten(module) as kept:
        pass
    assert not kept.stores
    with forgotten(module) as kept:
        module.names.add(10)
    assert kept.stores
    assert module.names == {1, 8, 9}
