import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.diagnostics.batch_bias import bias_over_batch_sizes, measure
from dpbench.step.clipping import Abadi, CountQuery, Global, Layerwise, Unclipped
from dpbench.step.mechanism.gradient import Gradient
from dpbench.step.methods.clipping_errors import Exchange
from dpbench.step.methods.dpsgd_f import Groupwise
from dpbench.step.methods.dpsgd_global import GlobalAdapt

GROUPS = [0, 1, 1, 2] * 8
QUANTILES = [0.0, 0.3, 0.5, 1.0]
QUERY = CountQuery(1.0, before=True)
CLIPS = {
    "unclipped": Unclipped(),
    "abadi": Abadi(0.4),
    "global": Global(0.3, 0.8),
    "global_adapt": GlobalAdapt(0.3, 0.8, 1.0, 0.1, QUERY),
    "groupwise": Groupwise(0.3, QUERY, published=False, groups=3),
    "groupwise_released": Groupwise(
        0.3, QUERY, published=False, groups=3, bounds=torch.tensor([0.2, 0.5, 0.8])
    ),
    "length": Exchange(0.4, length_of_clipped=True),
    "direction": Exchange(0.4, length_of_clipped=False),
}
SEAMS = ["dpsgd", "dpsat", "bam"]
LAMBDA = 0.3


def rows(step, batch, shift=0.0):
    """All gradients [B, D], one by one and in full."""
    engine = step.engine

    def losses(theta):
        named = engine.parameters.unflatten(theta)
        return cross_entropy(functional_call(engine.model, named, (batch.inputs,)), batch.targets)

    return jacrev(losses)(engine.parameters.theta.detach() + shift)


def rows_of(step, batch, seam):
    """What the method clips [B, D], in full."""
    g = rows(step, batch)
    last = step.released.gradient
    if seam == "dpsat" and last is not None:
        return rows(step, batch, LAMBDA * last / last.norm())
    if seam == "bam":
        pairs = zip(batch.split(1), g, strict=True)
        return torch.cat([rows(step, one, LAMBDA * row / row.norm()) for one, row in pairs])
    return g


def angle(u, v):
    """Its cosine; NaN where a vector is 0, which torch calls a right angle."""
    return (u @ v) / (u.norm() * v.norm())


def expected(step, batch, g, h):
    """Every value of a measurement, from gradients g and h [B, D] in full."""
    norms, clip = h.norm(dim=1), step.clip
    w = clip.factors(norms, batch.groups)
    mean, own, c = g.mean(0), h.mean(0), (w.unsqueeze(1) * h).mean(0)
    if isinstance(clip, Exchange):
        length, direction = (c, own) if clip.length_of_clipped else (own, c)
        c = direction * length.norm() / direction.norm()
    a = c @ mean / mean.norm() ** 2
    last = step.released.gradient
    values = {
        "bias": (c - mean).norm(),
        "scale": a,
        "bias_mag": (a * mean - mean).norm(),
        "bias_dir": (c - a * mean).norm(),
        "cos_bias": angle(c, mean),
        "own_bias": (c - own).norm(),
        "own_cos": angle(c, own),
        "norm_plain": mean.norm(),
        "norm_own": own.norm(),
        "norm_clipped": c.norm(),
        "clipped_fraction": (w < 1).double().mean(),
        "cos_previous": torch.tensor(math.nan) if last is None else angle(last, mean),
        "cos_examples": torch.stack([angle(row, mean) for row in g]).mean(),
    }
    for name, lengths in (("norm", g.norm(dim=1)), ("own_norm", norms)):
        for q in QUANTILES:
            values[f"{name}_q{q:g}"] = lengths.quantile(q)
    return {name: value.item() for name, value in values.items()}


def of_seam(small, split, clip, seam, physical=None):
    method = replace(small.method(seam, split), clip=clip)
    return small.step(method, small.network(), physical=physical)


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("clip", CLIPS)
def test_a_measurement_agrees_with_gradients_in_full(small, clip, seam):
    split = small.split(GROUPS)
    step = of_seam(small, split, CLIPS[clip], seam)
    first, batch = split.at(torch.arange(9)), split.at(torch.arange(5, 24))
    for stepped in (False, True):
        if stepped:
            step.clip = Abadi(0.3)  # not all clips bound what the noise has to hide
            step(first)
            step.clip = CLIPS[clip]
        g = rows(step, batch)
        h = rows_of(step, batch, seam)
        values = measure(step, [batch], [0, 1, 2], QUANTILES)
        assert values.keys() >= expected(step, batch, g, h).keys()
        for suffix, mask in {
            "": torch.ones(len(batch), dtype=torch.bool),
            **{f"/{k}": batch.groups == k for k in (0, 1, 2)},
        }.items():
            of_mask = expected(step, batch.each(lambda t, m=mask: t[m]), g[mask], h[mask])
            for name, value in of_mask.items():
                assert values[name + suffix] == close(value), name + suffix


def test_a_method_may_look_at_other_examples_than_those_of_the_batch(small):
    """As augmentation does: what is known of the batch is not taken for theirs."""

    def doubled(batch):
        return replace(batch, inputs=2 * batch.inputs)

    @dataclass(frozen=True)
    class Doubled(Gradient):
        def __call__(self, engine, batch, clip, released):
            return engine(doubled(batch))

    split = small.split(GROUPS)
    step = small.step(replace(small.method("dpsgd", split), gradient=Doubled()), small.network())
    batch = split.at(torch.arange(9))
    values = measure(step, [batch], [], QUANTILES)
    h = rows(step, doubled(batch))
    c = (h * (0.3 / h.norm(dim=1)).clamp(max=1).unsqueeze(1)).mean(0)
    assert values["own_bias"] == close((c - h.mean(0)).norm().item())
    assert values["bias"] == close((c - rows(step, batch).mean(0)).norm().item())


@pytest.mark.parametrize("seam", SEAMS)
def test_a_clip_of_layers_is_measured_by_its_layers(small, seam):
    split = small.split(GROUPS)
    step, batch = of_seam(small, split, Layerwise(Abadi(0.9)), seam), split.at(torch.arange(9))
    g, h = rows(step, batch), rows_of(step, batch, seam)
    layers = step.engine.parameters.layers
    parts = [h[:, layer.at] for layer in layers]
    ws = [Abadi(0.9 / len(layers) ** 0.5).factors(p.norm(dim=1), batch.groups) for p in parts]
    c = torch.cat([(w.unsqueeze(1) * p).mean(0) for w, p in zip(ws, parts, strict=True)])
    values = measure(step, batch.split(4), [0], [])
    assert values["norm_clipped"] == close(c.norm().item())
    assert values["bias"] == close((c - g.mean(0)).norm().item())
    assert values["own_cos"] == close(angle(c, h.mean(0)).item())
    shortened = torch.stack(ws) < 1
    assert (shortened.any(0) != shortened.all(0)).any(), "nothing is clipped in one layer alone"
    assert values["clipped_fraction"] == close(shortened.any(0).double().mean().item())
    first = batch.groups == 0
    alone = torch.cat([(w.unsqueeze(1) * p)[first].mean(0) for w, p in zip(ws, parts, strict=True)])
    assert values["norm_clipped/0"] == close(alone.norm().item())


@pytest.mark.parametrize("clip", CLIPS)
def test_parts_add_up_to_the_whole_and_one_group_is_everyone(small, clip):
    split = small.split(GROUPS)
    step = of_seam(small, split, CLIPS[clip], "dpsgd")
    batch = split.at(torch.arange(len(split)))
    whole = measure(step, [batch], [0, 1, 2], QUANTILES)
    assert measure(step, batch.split(5), [0, 1, 2], QUANTILES) == close(whole)
    assert measure(step, iter(batch.split(1)), [0, 1, 2], QUANTILES) == close(whole)
    split = small.split([0] * 12)
    step = of_seam(small, split, CLIPS[clip], "bam")
    values = measure(step, [split.at(torch.arange(12))], [0], QUANTILES)
    names = {name for name in values if not name.endswith("/0")}
    assert len(values) == 2 * len(names)
    assert {n: values[f"{n}/0"] for n in names} == close({n: values[n] for n in names})


def test_gradients_within_the_bound_have_no_bias(small):
    """Lemma 2: none where every norm is at most C, and then more the shorter C is."""
    split = small.split(GROUPS)
    batch = split.at(torch.arange(len(split)))
    longest = rows(of_seam(small, split, Abadi(1.0), "dpsgd"), batch).norm(dim=1).max().item()
    seen = [
        measure(of_seam(small, split, Abadi(c * longest), "dpsgd"), [batch], [0], [])
        for c in (1.001, 0.5, 0.2, 0.1, 0.01)
    ]
    first = seen[0]
    assert [first[n] for n in ("bias", "bias/0", "bias_mag", "bias_dir", "own_bias")] == [0] * 5
    assert (first["scale"], first["clipped_fraction"]) == (1, 0)
    assert first["cos_bias"] == close(1)
    assert [v["bias"] for v in seen] == sorted({v["bias"] for v in seen})


def test_a_shorter_gradient_may_raise_the_bias_against_lemma_2():
    """What clipping removes of two opposite gradients cancels if they are equally long."""

    def bias(*gradients):
        rows = torch.tensor(gradients, dtype=torch.float64)[:, None]
        factors = Abadi(1.0).factors(rows.norm(dim=1), torch.zeros(len(rows), dtype=torch.int64))
        return (factors[:, None] * rows - rows).mean(0).norm().item()

    assert (bias(3.0, -3.0), bias(3.0, -2.0)) == (0.0, 0.5)


class Counting:
    """An engine that counts its passes, and whose gradients are never seen in full."""

    def __init__(self, engine):
        self.engine, self.passes = engine, 0
        self.name, self.model, self.loss = engine.name, engine.model, engine.loss
        self.parameters, self.views, self.options = engine.parameters, engine.views, engine.options
        self.by_row = engine.by_row

    def __call__(self, batch, shift=None):
        self.passes += 1
        gradients = self.engine(batch, shift)
        gradients.stack = None
        return gradients


@pytest.mark.parametrize(("seam", "passes"), [("dpsgd", 1), ("dpsat", 2), ("bam", 2)])
def test_a_measurement_is_one_engine_pass_or_two_and_stacks_nothing(small, seam, passes):
    split = small.split(GROUPS)
    step = of_seam(small, split, Abadi(0.3), seam)
    step(next(small.batches(split)))
    step.engine = Counting(step.engine)
    measure(step, split.at(torch.arange(len(split))).split(8), [0, 1, 2], QUANTILES)
    assert step.engine.passes == 4 * passes


def test_without_examples_or_a_gradient_nothing_is_known(small):
    split = small.split([0, 0, 1])
    step = of_seam(small, split, Abadi(0.3), "bam")
    nobody = measure(step, [split.at(torch.arange(0))], [0], QUANTILES)
    assert all(map(math.isnan, nobody.values()))
    some = measure(step, [split.at(torch.arange(2))], [0, 1], QUANTILES)
    unknown = {name for name, value in some.items() if math.isnan(value)}
    absent = {name for name in some if name.endswith("/1")}
    assert unknown == absent | {"cos_previous", "cos_previous/0"}
    split = small.split([0] * 4)
    split.inputs[0] = 0
    model = nn.Sequential(nn.Linear(4, 2, bias=False)).double()
    step = small.step(small.method("dpsgd", split), model)
    values = measure(step, [split.at(torch.arange(4))], [], QUANTILES)
    g = rows(step, split.at(torch.arange(4)))
    assert g[0].norm() == 0
    along = torch.nn.functional.cosine_similarity(g[1:], g.mean(0).unsqueeze(0))
    assert values["cos_examples"] == close(along.mean().item())
    assert values["norm_q0"] == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
@pytest.mark.parametrize("seam", ["dpsgd", "bam"])
def test_a_gradient_that_is_not_finite_counts_as_zero(small, seam, value):
    split = small.split([0, 1, 0, 1, 0])
    step = small.step(small.method(seam, split), small.network()[:1])
    split.inputs[0] = value
    # The wrong class, so that what is merely long has a gradient whose square is too large.
    split.targets[0] = step.engine.model[0].weight.sum(1).argmin()
    batch = split.at(torch.arange(5))
    assert not step.engine(batch).norms[0].isfinite()
    values = measure(step, [batch], [0, 1], QUANTILES)
    others = split.at(torch.arange(1, 5))
    finite, own = rows(step, others), rows_of(step, others, seam)
    lengths, own_lengths = finite.norm(dim=1), own.norm(dim=1)
    g = finite.sum(0) / 5
    c = (own * (0.3 / own_lengths).clamp(max=1).unsqueeze(1)).sum(0) / 5
    assert values["norm_plain"] == close(g.norm().item())
    assert values["bias"] == close((c - g).norm().item())
    assert values["own_bias"] == close((c - own.sum(0) / 5).norm().item())
    assert values["clipped_fraction"] == close((1 + (own_lengths > 0.3).sum().item()) / 5)
    assert values["norm_q0.3"] == close(lengths.quantile(0.3).item())
    along = torch.nn.functional.cosine_similarity(finite, g.unsqueeze(0))
    assert values["cos_examples"] == close(along.mean().item())
    assert not any(math.isnan(v) for n, v in values.items() if "cos_previous" not in n)


def test_the_model_is_measured_without_dropout(small):
    split = small.split(GROUPS)
    batch = next(small.batches(split))

    def measured(*between):
        step = small.step(small.method("bam", split), small.network(*between))
        return measure(step, [batch], [0], QUANTILES)

    assert measured(nn.Dropout(0.9)) == close(measured())


def test_batches_of_one_have_the_bias_of_one_example_and_those_of_all_that_of_all(small):
    split = small.split(GROUPS)
    step = of_seam(small, split, Abadi(0.4), "dpsgd", physical=5)
    draw = torch.Generator().manual_seed(0)
    columns = bias_over_batch_sizes(step, split, [1, 32], 4, draw)
    assert columns["batch_size"] == [1] * 4 + [32] * 4
    assert columns["repeat"] == [0, 1, 2, 3] * 2
    alone = (rows(step, split.at(torch.arange(32))).norm(dim=1) - 0.4).clamp(min=0)
    assert all((alone - bias).abs().min() < 1e-9 for bias in columns["bias"][:4])
    assert len(set(columns["bias"][:4])) > 1
    assert columns["cos_bias"][:4] == close([1.0] * 4)
    for name, value in measure(step, [split.at(torch.arange(32))], [], []).items():
        assert columns[name][4:] == close([value] * 4), name


def test_the_mean_square_of_the_bias_falls_with_the_batch_as_that_of_a_sample(small):
    """E|b_B|^2 = |b|^2 + (1 - B/n) v/B, v the variance of the examples' biases over n - 1."""
    split = small.split(GROUPS)
    step = of_seam(small, split, Abadi(0.4), "dpsgd")
    n, repeats = len(split), 60
    g = rows(step, split.at(torch.arange(n)))
    own = g * ((0.4 / g.norm(dim=1)).clamp(max=1) - 1).unsqueeze(1)
    mean, variance = own.mean(0).square().sum(), own.var(0).sum()
    sizes = [2, 8, 16]
    columns = bias_over_batch_sizes(step, split, sizes, repeats, torch.Generator().manual_seed(1))
    squares = torch.tensor(columns["bias"]).view(len(sizes), repeats) ** 2
    for size, seen in zip(sizes, squares, strict=True):
        predicted = mean + (1 - size / n) * variance / size
        assert abs(seen.mean() - predicted) < 4 * seen.std() / math.sqrt(repeats)
    assert squares.mean(1).tolist() == sorted(squares.mean(1).tolist(), reverse=True)


def test_batches_are_drawn_from_their_generator_alone_and_nothing_moves(small):
    split = small.split(GROUPS)
    step = of_seam(small, split, Abadi(0.4), "drawing")
    theta, state = step.engine.parameters.theta.detach().clone(), torch.get_rng_state()

    def drawn(seed):
        return bias_over_batch_sizes(step, split, [7], 2, torch.Generator().manual_seed(seed))

    one, same, other = drawn(3), drawn(3), drawn(4)
    assert str(one) == str(same) != str(other)
    assert torch.equal(step.engine.parameters.theta, theta)
    assert torch.equal(torch.get_rng_state(), state)
