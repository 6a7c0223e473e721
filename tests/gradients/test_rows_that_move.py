"""Models in which rows, modules and weights do not stay where a rule takes them to be."""

import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpbench.clipping import Abadi
from dpbench.data.dataset import Batch
from dpbench.gradients import ENGINES, EngineFallback, PerExampleShift, make_engine
from dpbench.gradients.engine import MaterialisedGradients
from dpbench.gradients.loop import Loop
from dpbench.gradients.penalised import penalised
from dpbench.models.architecture import cross_entropy
from dpbench.models.batch_norm import freeze_batch_norm
from dpbench.system.errors import UserError

WIDTH = 6


def labelled(x):
    return Batch(x, torch.arange(len(x)) % 3, torch.zeros(len(x), dtype=torch.long))


def examples(n, seed, scale=1.0):
    return labelled(torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed)) * scale)


# What a part of a model may do with rows h [B, d], the module that it is given, and the inputs.


def as_it_is(module, h, x):
    return module(h)


def by_first_feature(module, h, x):
    order = x[:, 0].argsort(stable=True)
    return module(h[order])[order.argsort()]


def by_length(module, h, x):
    lengths = (x > 0).sum(1)
    _, order = torch.sort(lengths, stable=True)
    return torch.empty_like(h).index_copy(0, order, module(h.index_select(0, order)))


def reversed_rows(module, h, x):
    return module(h.flip(0)).flip(0)


def rolled(module, h, x):
    return module(h.roll(1, 0)).roll(-1, 0)


def by_a_matrix(module, h, x):
    moved = F.one_hot(x[:, 1].argsort(), len(h)).to(h)
    return moved.mT @ module(moved @ h)


def gathered(module, h, x):
    order = x[:, 0].argsort(descending=True).unsqueeze(1).expand_as(h)
    return torch.zeros_like(h).scatter(0, order, module(h.gather(0, order)))


def some_rows(module, h, x):
    chosen = x[:, 0] > 0
    out = h.clone()
    out[chosen] = module(h[chosen])
    return out


def two_halves(module, h, x):
    return torch.cat([module(h[: len(h) // 2]), module(h[len(h) // 2 :])])


def written_backwards(module, h, x):
    out = torch.empty_like(h)
    for i, row in enumerate(module(h.flip(0)).unbind()):
        out[len(h) - 1 - i] = row
    return out


def twice(module, h, x):
    return module(torch.tanh(module(h)))


def by_weight(module, h, x):
    return module(h) + F.linear(h, module.weight)


def rarely_sorted(module, h, x):
    return by_first_feature(module, h, x) if x.max() > 4 else module(h)


def sorted_without_a_branch(module, h, x):
    order = torch.where(x.max() > 4, x[:, 0].argsort(), torch.arange(len(x)))
    return module(h[order])[order.argsort()]


def sorted_by_a_list(module, h, x):
    order = sorted(range(len(x)), key=x[:, 0].tolist().__getitem__)
    back = sorted(range(len(x)), key=order.__getitem__)
    return module(h[order])[back] if x.detach().numpy().max() > 4 else module(h)


def rarely_twice(module, h, x):
    return twice(module, h, x) if bool((x > 4).any()) else module(h)


def rarely_by_weight(module, h, x):
    return by_weight(module, h, x) if x.max() > 4 else module(h)


def for_large_batches(module, h, x):
    return reversed_rows(module, h, x) if len(x) > 20 else module(h)


def for_large_batches_by_index(module, h, x):
    order = torch.arange(len(h))
    order = order.flip(0) if len(x) > 20 else order
    return module(h[order])[order]


def at_random(module, h, x):
    return reversed_rows(module, h, x) if torch.rand(()) < 0.5 else module(h)


def at_random_in_python(module, h, x):
    return reversed_rows(module, h, x) if random.random() < 0.5 else module(h)


def at_random_in_numpy(module, h, x):
    return reversed_rows(module, h, x) if np.random.random() < 0.5 else module(h)


def every_third_time(module, h, x):
    module.passes = getattr(module, "passes", 0) + 1
    return reversed_rows(module, h, x) if module.passes % 3 == 0 else module(h)


def scaled_for_large_values(module, h, x):
    return module(h / 9) if x.max() > 4 else module(h)


def divided_by_the_largest(module, h, x):
    return module(h / max(4.0, x.detach().abs().max().item()))


def sorted_if_some_are_selected(module, h, x):
    return by_first_feature(module, h, x) if len(x[x.abs() > 4]) else module(h)


def normalised_if_any_is_nonzero(module, h, x):
    return module(h / h.norm() if torch.nonzero(x.abs() > 4).numel() else h)


def every_third_time_by_a_dict(module, h, x):
    module.counts = getattr(module, "counts", {"passes": [0]})
    module.counts["passes"][0] += 1
    return reversed_rows(module, h, x) if module.counts["passes"][0] % 3 == 0 else module(h)


def at_random_by_its_own(module, h, x):
    module.draw = getattr(module, "draw", None) or random.Random(0)
    return reversed_rows(module, h, x) if module.draw.random() < 0.5 else module(h)


def clipped(gradient):
    """That of all examples, which is only longer than this in a larger batch than a probe's; None
    where an input, such as that of the first layer, has none."""
    return None if gradient is None else gradient * (2 / gradient.norm()).clamp(max=1)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return clipped(gradient)


def clipped_by_a_function(module, h, x):
    return Clipped.apply(module(h))


def clipped_by_a_hook(module, h, x):
    out = torch.sin(module(h))
    if out.requires_grad:
        out.register_hook(clipped)
    return out


def clipped_by_a_module(module, h, x):
    if not module._backward_hooks:
        module.register_full_backward_hook(lambda _, inputs, outputs: (clipped(inputs[0]),))
    return module(torch.sin(h))


def clipped_by_an_old_hook(module, h, x):
    if not module._backward_hooks:
        module.register_backward_hook(  # gradients of bias, inputs and weight
            lambda _, inputs, outputs: (inputs[0], clipped(inputs[1]), inputs[2])
        )
    return module(torch.sin(h))


def clipped_by_a_node(module, h, x):
    out = torch.sin(module(h))
    if out.requires_grad:
        out.grad_fn.register_prehook(lambda gradients: (clipped(gradients[0]),))
    return out


def clipped_in_store(module, h, x):
    def pack(t):
        return t * (4 / t.norm()).clamp(max=1) if t.is_floating_point() else t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        return module(torch.sin(h))


def scaled_by_a_text(module, h, x):
    return module(h / 9 if "True" in repr(x.detach() > 4) else h)


def scaled_by_an_error(module, h, x):
    try:
        torch.linalg.cholesky((4 - x.amax()).view(1, 1))
        return module(h)
    except RuntimeError:
        return module(h / 9)


def scaled_by_an_index(module, h, x):
    try:
        torch.ones(2)[(x.amax(1) > 4).long() * 9]
        return module(h)
    except IndexError:
        return module(h / 9)


def scaled_by_a_draw(module, h, x):
    try:
        torch.bernoulli(torch.where(x.amax(1) > 4, 2.0, 0.5))
        return module(h)
    except RuntimeError:
        return module(h / 9)


def shuffled_as_channels(module, h, x):
    images = torch.where(x > 4, x, 0)[:, :4].reshape(-1, 2, 2)
    parts = F.pixel_unshuffle(images, 2).reshape(4, -1).T
    return module(h + 9 * F.pad(parts, (0, 2)))


def shifted_by_less_than_a_row(module, h, x):
    longer = x.new_zeros(x.numel() + 5)
    longer[5:] = torch.where(x > 4, x, 0).flatten()
    return module(h + 9 * longer[:-5].view_as(x))


def shifted_by_a_row(module, h, x):
    longer = x.new_zeros(2, len(x) + 1, WIDTH)
    longer[:, 1:] = torch.where(x > 4, x, 0)
    return module(h + 9 * longer[1, :-1])


KEEPS_ROWS = (as_it_is,)
IN_LARGE_BATCHES = (for_large_batches, for_large_batches_by_index)
MOVES = (
    by_first_feature, by_length, reversed_rows, rolled, by_a_matrix, gathered, some_rows,
    two_halves, written_backwards, twice, by_weight, rarely_sorted, sorted_without_a_branch,
    sorted_by_a_list, rarely_twice, rarely_by_weight, for_large_batches,
    for_large_batches_by_index, at_random,
    at_random_in_python, at_random_in_numpy, every_third_time, scaled_for_large_values,
    divided_by_the_largest, sorted_if_some_are_selected, normalised_if_any_is_nonzero,
    every_third_time_by_a_dict, at_random_by_its_own, clipped_by_a_function, clipped_by_a_hook,
    clipped_by_a_module, clipped_by_an_old_hook, clipped_by_a_node, clipped_in_store,
    scaled_by_a_text, scaled_by_an_error, scaled_by_an_index, scaled_by_a_draw,
    shuffled_as_channels, shifted_by_less_than_a_row, shifted_by_a_row,
)  # fmt: skip
ERRORS = (scaled_by_an_error, scaled_by_an_index, scaled_by_a_draw)


class Composed(nn.Module):
    """Layers of one width, each called in its own way, in training mode alone or always."""

    def __init__(self, parts, training_only):
        super().__init__()
        self.parts, self.training_only = parts, training_only
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in parts)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = x
        for part, layer in zip(self.parts, self.layers, strict=True):
            part = part if self.training or not self.training_only else as_it_is
            h = torch.tanh(part(layer, h, x))
        return self.head(h)


def seeded(make, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def sensitivity(engine, batch):
    """The largest change of the clipped sum by removing one example, with bound 1."""

    def total(part):
        gradients = engine(part)
        return gradients.weighted_sum(Abadi(1.0).factors(gradients.norms, part.groups))

    full, n = total(batch), len(batch)
    kept = [torch.arange(n) != i for i in range(n)]
    parts = [batch.each(lambda t, keep=keep: t[keep]) for keep in kept]
    return max(float((full - total(part)).norm()) for part in parts)


def typed(batch, model):
    """The batch in the precision of the model."""
    return replace(batch, inputs=batch.inputs.to(model.head.weight.dtype))


def holds(model, name, scale, n=24, one_large=False):
    """Whether an engine for the model is refused, or its sensitivity and its rows are right.

    one_large: whether a single example has values above 4.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EngineFallback)
            engine = make_engine(name, model, cross_entropy, typed(examples(2, 0), model))
        with torch.no_grad():
            engine.parameters.theta.mul_(4)
        batch = typed(examples(n, 1, scale), model)
        reference = Loop(model, cross_entropy, engine.parameters)
        if one_large:
            batch.inputs.clamp_(-3, 3)[0, 0] = 5
        for training in (True, False):
            model.train(training)
            assert sensitivity(engine, batch) <= 1 + 1e-5
            ours, right = engine(batch).stack().double(), reference(batch).stack()
            assert torch.allclose(
                ours, right, rtol=1e-3, atol=1e-4 * float(right.norm(dim=1).max())
            )
    except UserError:
        return None
    return engine.name


@pytest.mark.sampled(20)
@pytest.mark.filterwarnings("ignore:Using .*non-full backward hook:FutureWarning")
@pytest.mark.parametrize("training_only", [False, True])
@pytest.mark.parametrize("part", MOVES, ids=lambda part: part.__name__)
def test_a_part_that_moves_rows_costs_no_sensitivity(part, training_only):
    model = seeded(lambda: Composed([as_it_is, part], training_only))
    holds(model, "ghost", scale=3.0, n=22 if part in IN_LARGE_BATCHES else 10)


@pytest.mark.parametrize("name", ["ghost", "vmap"])
@pytest.mark.parametrize("part", [*ERRORS, scaled_by_a_text], ids=lambda part: part.__name__)
def test_an_error_or_a_text_that_one_example_causes_changes_no_other(part, name):
    model = seeded(lambda: Composed([as_it_is, part], False))
    holds(model, name, scale=3.0, n=10, one_large=True)


@pytest.mark.parametrize("part", [scaled_by_an_index, scaled_by_a_draw])
@pytest.mark.parametrize("name", ["ghost", "vmap"])
def test_an_error_that_is_caught_is_named(part, name):
    model = seeded(lambda: Composed([as_it_is, part], False))
    engine = make_engine(name, model, cross_entropy, examples(2, 0, 0.1))
    usual, large = examples(10, 1, 0.1), examples(10, 1, 0.1)
    large.inputs[0, 0] = 5
    passes = (
        engine,
        lambda batch: engine.by_row(model, batch.inputs),
        lambda batch: penalised(engine, batch, 0.1),
    )
    for compute in passes:
        compute(usual)  # passes like it are not followed any more
        with pytest.raises(UserError, match=r"(caught|catches) an error.*engine=loop"):
            compute(large)


def test_the_reference_penalises_examples_one_by_one():
    model = seeded(lambda: Composed([as_it_is, scaled_by_an_index], False))
    engine = make_engine("loop", model, cross_entropy, examples(2, 0))
    batch = examples(10, 1)
    batch.inputs[0, 0] = 5
    assert sensitivity(lambda part: penalised(engine, part, 0.1), batch) <= 1 + 1e-5


def test_an_error_that_every_pass_catches_costs_time_alone():
    def careful(module, h, x):
        try:
            return module(h @ x)
        except RuntimeError:
            return module(h)

    model = seeded(lambda: Composed([careful], False))
    with pytest.warns(EngineFallback, match="Python catches an error .*one by one, which is slow"):
        engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    reference = Loop(model, cross_entropy, engine.parameters)
    batch = examples(10, 1)
    assert torch.allclose(engine(batch).stack().double(), reference(batch).stack(), 1e-3, 1e-5)


@pytest.mark.filterwarnings("ignore:Using .*non-full backward hook:FutureWarning")
@pytest.mark.parametrize(
    "part", [clipped_by_a_hook, clipped_by_a_module, clipped_by_an_old_hook, clipped_by_a_node]
)
def test_vmap_refuses_hooks_through_which_gradients_pass(part):
    model = seeded(lambda: Composed([as_it_is, part], False))
    with pytest.raises(UserError, match=r"engine=vmap cannot be used .*engine=loop"):
        make_engine("vmap", model, cross_entropy, examples(2, 0))


@pytest.mark.filterwarnings("ignore:Using .*non-full backward hook:FutureWarning")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(300))
def test_random_models_keep_their_sensitivity_or_are_refused(seed):
    draw = random.Random(seed)
    parts = draw.choices((*KEEPS_ROWS, *MOVES), k=draw.randint(1, 4))
    model = seeded(lambda: Composed(parts, draw.random() < 0.5), seed)
    model.double()  # some are too badly conditioned for float32
    for name in (*ENGINES, "auto"):
        scale, n = draw.choice((0.5, 1.0, 3.0)), draw.choice((3, 12, 24))
        holds(model, name, scale, n, one_large=draw.random() < 0.5)


# Models that a rule is right for are not refused, and run on the fast engine.


class Sequence(nn.Module):
    """Tokens, expanded positions, and the hidden state of each sequence's last token."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, WIDTH), nn.Embedding(5, WIDTH)
        self.mixed, self.head = nn.Linear(5, 5), nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(5).unsqueeze(0))
        h = h + self.mixed(h.transpose(1, 2)).transpose(1, 2)
        last = (x != 0).sum(1).clamp(min=1) - 1
        return self.head(h[torch.arange(len(x)), last])


class Experts(nn.Module):
    """All experts see all rows, and a gate weighs them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 3) for _ in range(3))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        return torch.einsum("be,bec->bc", shares, outputs)


class FirstSequence(nn.Module):
    """Computes with positions first and examples second between its modules."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = self.inner(x.view(len(x), 3, 2)).permute(1, 0, 2)
        total = torch.zeros(len(x), WIDTH)
        for step in h:
            total = torch.tanh(total + step)
        return self.head(total)


class LayerDrop(nn.Module):
    """Skips a layer at random in training."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = (nn.Linear(WIDTH, n) for n in (WIDTH, WIDTH, 3))

    def forward(self, x):
        h = torch.tanh(self.one(x))
        if not self.training or torch.rand(()).item() > 0.5:
            h = torch.tanh(self.two(h))
        return self.head(h)


class Checked(Composed):
    """Raises on what is not finite, as careful code does."""

    def forward(self, x):
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        return super().forward(x)


def frozen_batch_norm():
    layers = nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 3)
    model = nn.Sequential(*layers)
    model(torch.randn(8, WIDTH))
    return freeze_batch_norm(model)


def hooked():
    model = nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


RIGHT = {
    "sequence": Sequence,
    "experts": Experts,
    "positions first": FirstSequence,
    "layer drop": LayerDrop,
    "frozen batch normalisation": frozen_batch_norm,
    "hook": hooked,
    "plain": lambda: Composed([as_it_is] * 3, False),
    "large batches": lambda: Composed([as_it_is, for_large_batches], False),
    "rarely sorted": lambda: Composed([as_it_is, rarely_sorted], False),
    "checked": lambda: Checked([as_it_is], False),
    "a function": lambda: Composed([clipped_by_a_function], False),
}
ONE_BY_ONE = ("rarely sorted", "checked", "a function")


def batch_for(model, n, seed=0, scale=1.0):
    if isinstance(model, Sequence):
        draw = torch.Generator().manual_seed(seed)
        return labelled(torch.randint(0, 9, (n, 5), generator=draw))
    return examples(n, seed, scale)


@pytest.mark.parametrize("name", ["ghost", "auto"])
@pytest.mark.parametrize("kind", ONE_BY_ONE)
def test_who_reads_values_is_told_what_it_costs(kind, name):
    model = seeded(RIGHT[kind])
    with pytest.warns(EngineFallback, match="computing gradients one by one, which is slow"):
        make_engine(name, model, cross_entropy, batch_for(model, 2))


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("kind", RIGHT)
def test_models_that_a_rule_is_right_for_run_on_the_fast_engine(kind):
    model = seeded(RIGHT[kind])
    engine = make_engine("ghost", model, cross_entropy, batch_for(model, 2))
    assert engine.name == "ghost"
    assert bool(engine.alone) == (kind in ONE_BY_ONE)
    model.eval()
    batch = batch_for(model, 24, 1, scale=3.0)
    reference = Loop(model, cross_entropy, engine.parameters)
    here, right = engine(batch), reference(batch)
    assert torch.allclose(here.stack().double(), right.stack(), rtol=1e-3, atol=1e-5)
    scales = torch.full((24,), 0.01)
    ahead = engine(batch, PerExampleShift(here, scales)).stack().double()
    expected = reference(batch, PerExampleShift(right, scales.double())).stack()
    assert torch.allclose(ahead, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [slice(9, 17), slice(3, None, 3)], ids=["slice", "steps"])
def test_a_batch_that_is_a_view_of_a_larger_one_is_one_pass(rows):
    model = seeded(RIGHT["plain"])
    engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    batch = examples(24, 1).each(lambda t: t[rows])
    assert not isinstance(engine(batch), MaterialisedGradients)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("kind", ["rarely sorted", "large batches"])
def test_rows_that_move_in_a_step_are_computed_one_by_one(kind):
    model = seeded(RIGHT[kind]).eval()
    engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    batch = examples(24, 1, scale=5.0)
    reference = Loop(model, cross_entropy, engine.parameters)
    common = torch.full_like(engine.parameters.theta, 0.01)
    pairs = [
        (engine(batch), reference(batch)),
        (engine(batch, common), reference(batch, common.double())),
    ]
    if kind == "large batches":  # torch does not vectorise a branch on values
        pairs.append((penalised(engine, batch, 0.1), penalised(reference, batch, 0.1)))
    for ours, right in pairs:
        assert isinstance(ours, MaterialisedGradients)
        assert torch.allclose(ours.stack().double(), right.stack().double(), 1e-3, 1e-4)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
def test_a_weight_that_a_rare_example_uses_directly_is_no_lost_gradient():
    model = seeded(lambda: Composed([rarely_by_weight], False))
    engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    with pytest.raises(UserError, match="parameters are used without calling the module"):
        engine(examples(24, 1, scale=5.0))


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
