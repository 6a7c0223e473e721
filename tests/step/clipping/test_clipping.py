"""Clips: one example moves the weighted sum by the stated sensitivity and by no more.

Gradients are made up, of any length from 1e-6 to 1e6, and the state of an adaptive clip is whatever
answers to its counts can make it: the account lets the answers be anything.
"""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench import clipping
from dpbench.step.clipping import (
    Abadi,
    Automatic,
    BatchClip,
    ByNorm,
    Clip,
    Coordinates,
    CountQuery,
    DelegatingClip,
    Global,
    Layerwise,
    Normalise,
    NormalisedQuantile,
    Quantile,
    Unclipped,
    make_clip,
)
from dpbench.step.clipping.choice import BY_NORM
from dpbench.step.gradients import Layer
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.mechanism.step import finite_factors
from dpbench.step.methods.dicesgd import ErrorFeedback
from dpbench.step.methods.dpsgd_f import Groupwise
from dpbench.step.methods.dpsgd_global import GlobalAdapt
from dpbench.step.methods.slaclip import Slack
from dpbench.system.errors import UserError
from tests.problems import Made, problem

GROUPS, DIMENSION = 3, 4
ASK = CountQuery(10.0, before=True)

LAYERS = (Layer("first", slice(0, 1)), Layer("second", slice(1, DIMENSION)))
COUNTS = CountQuery(25.6, before=False)

CLIPS: dict[str, Clip] = {
    **{name: make_clip(name, "flat", 0.5) for name in BY_NORM},
    **{f"{name}_layerwise": make_clip(name, "layerwise", [0.3, 0.4]) for name in BY_NORM},
    "strict_global": Global(0.5, strict_bound=20.0),
    "strict_global_layerwise": Layerwise(Global(0.5, strict_bound=20.0)),
    "quantile": Quantile(Abadi(0.5), 0.5, 0.2, COUNTS),
    "quantile_global": Quantile(Global(0.5, 0.5), 0.9, 0.2, COUNTS),
    "quantile_layerwise": Quantile(
        make_clip("automatic", "layerwise", [0.3, 0.4]), 0.5, 0.2, COUNTS
    ),
    "normalised": NormalisedQuantile(Abadi(0.5), 0.5, 0.2, COUNTS, 2.5, 0.1),
    "normalised_layerwise": NormalisedQuantile(
        make_clip("psac", "layerwise", [0.3, 0.4]), 0.5, 0.2, COUNTS, 2.5, 0.1
    ),
    "slack": Slack(0.5, 4, 0.5, 0.5, 0.01, 50.0),
    "error_feedback": ErrorFeedback(Abadi(0.5), 0.2, 0.5),
    "global_adapt": GlobalAdapt(0.5, 20.0, 0.7, 0.1, CountQuery(10.0, before=False)),
    "coordinates": Coordinates(0.3, DIMENSION),
    "groupwise": Groupwise(0.5, ASK, published=False).bind(problem()),
}
PAPER = Groupwise(0.5, ASK, published=True).bind(problem())

cheap = settings(derandomize=True, deadline=None, max_examples=60)

# Exponents of the lengths; those in the second set lie about C and Z, where clips change course.
lengths = st.one_of(st.floats(-6, 6), st.sampled_from([-0.31, -0.3, 1.2, 1.3, 1.31, 1.5, 1.59]))
examples = st.lists(st.tuples(lengths, st.integers(0, GROUPS - 1)), min_size=1, max_size=6)
answers = st.lists(
    st.lists(
        st.one_of(st.floats(-50, 500), st.sampled_from([0.0, -1e30, 1e30])),
        min_size=2 * GROUPS,
        max_size=2 * GROUPS,
    ),
    max_size=3,
)


def gradients(examples: list, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [B, D] with the lengths 10^exponent in random directions, and group numbers [B]."""
    exponents, groups = zip(*examples, strict=True)
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(len(examples), DIMENSION, dtype=torch.float64, generator=draw)
    lengths = 10 ** torch.tensor(exponents, dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True) * lengths.unsqueeze(1), torch.tensor(groups)


def clipped_sum(clip: Clip, rows: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    batch = stacked(rows)
    return clip.finish(clip.reduce(batch, clip.factors(clip.norms(batch), groups)))


def stacked(rows: torch.Tensor) -> MaterialisedGradients:
    return MaterialisedGradients(rows.new_zeros(len(rows)), rows, LAYERS)


def after(clip: Clip, answers: list) -> Clip:
    """The clip after its counts were answered with these numbers."""
    nobody = clip.norms(stacked(torch.zeros(0, DIMENSION)))
    size = len(clip.counts(nobody, torch.zeros(0, dtype=torch.long)))
    for answer in answers:
        clip = clip.updated(torch.tensor(answer[:size], dtype=torch.float64), 8.0)
    return clip


def longest(clip: Clip) -> torch.Tensor:
    """The length of a gradient that reaches the sensitivity, or those of its two layers' parts."""
    if isinstance(clip, Coordinates):
        return torch.full((DIMENSION,), 1e12, dtype=torch.float64)
    clip = clip.clip if isinstance(clip, Quantile) else clip
    function = clip.clip if isinstance(clip, Layerwise) else clip
    strict = float(getattr(function, "strict_bound", 1e12))  # Global drops whatever is longer
    if not isinstance(clip, Layerwise):
        return torch.tensor([strict], dtype=torch.float64)
    bounds = clip.bounds_of(torch.zeros(2, dtype=torch.float64))
    return bounds / float(function.bound) * strict * (1 - 1e-9)


def without(i: int, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [torch.cat([t[:i], t[i + 1 :]]) for t in tensors]


def moved(clip: Clip, rows: torch.Tensor, groups: torch.Tensor, i: int) -> float:
    """How far the sum moves when example i is taken away."""
    rest = clipped_sum(clip, *without(i, rows, groups))
    return float((clipped_sum(clip, rows, groups) - rest).norm())


def test_every_clip_is_put_to_the_test():
    # Those that live with a method are also tested with it (tests/step/methods/test_methods.py).
    concrete = {
        value
        for _, value in inspect.getmembers(clipping, inspect.isclass)
        if issubclass(value, Clip) and value not in (Clip, ByNorm, DelegatingClip)
    }
    doubtful = (Unclipped(), BatchClip(1.0))
    assert concrete <= {type(clip) for clip in (*CLIPS.values(), *doubtful)}
    assert all(clip.sensitivity.caveat for clip in doubtful)
    assert not any(clip.sensitivity.caveat for clip in CLIPS.values())


@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@given(examples, answers, st.integers(0, 9), st.data())
@cheap
def test_one_example_moves_the_sum_by_at_most_the_sensitivity(clip, examples, answers, seed, data):
    clip = after(clip, answers)
    rows, groups = gradients(examples, seed)
    i = data.draw(st.integers(0, len(rows) - 1))
    assert math.isfinite(clip.sensitivity.bound)
    assert moved(clip, rows, groups, i) <= float(clip.sensitivity.bound) * (1 + 1e-9)


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@given(answers)
@cheap
def test_the_sensitivity_is_reached_so_no_noise_is_wasted(clip, answers):
    clip = after(clip, answers)
    parts = longest(clip)
    rows = torch.zeros(GROUPS, DIMENSION, dtype=torch.float64)
    rows[:, : len(parts)] = parts
    farthest = max(moved(clip, rows, torch.arange(GROUPS), i) for i in range(GROUPS))
    assert farthest == pytest.approx(float(clip.sensitivity.bound), rel=1e-6)


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@given(examples, answers, st.integers(0, 9), st.data())
@cheap
def test_one_example_moves_the_counts_by_at_most_one(clip, examples, answers, seed, data):
    clip = after(clip, answers)
    rows, groups = gradients(examples, seed)
    i = data.draw(st.integers(0, len(rows) - 1))
    norms = clip.norms(stacked(rows)).clone()
    norms[0] = data.draw(st.sampled_from([float(norms[0].max()), math.inf, math.nan]))
    change = clip.counts(norms, groups) - clip.counts(*without(i, norms, groups))
    assert change.double().norm() <= 1


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@given(answers)
@cheap
def test_factors_are_never_negative_and_finite_for_finite_norms(clip, answers):
    norms = torch.tensor([0.0, 1e-12, 0.5, 1.0, 20.0, 1e12], dtype=torch.float64)
    if clip.norms(stacked(torch.zeros(1, DIMENSION))).dim() == 2:
        norms = torch.stack([norms, norms.flip(0)], 1)
    factors = after(clip, answers).factors(norms, torch.tensor([0, 1, 2, 0, 1, 2]))
    assert factors.shape == norms.shape
    assert factors.isfinite().all()
    assert (factors >= 0).all()


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
def test_a_clip_is_a_value_that_answers_do_not_change(clip):
    before = (float(clip.sensitivity.bound), str(clip))
    after(clip, [[3.0] * (2 * GROUPS)])
    assert (float(clip.sensitivity.bound), str(clip)) == before


def test_the_paper_variant_of_dpsgd_f_breaks_its_stated_sensitivity():
    # Counter-example: group 2 has only long gradients, so its bound is above C0.
    clip = after(PAPER, [[9, 1, 9, 1, 0, 10]])
    rows, groups = gradients([(3, 2), (-3, 0)], seed=0)
    assert float(clip.sensitivity.bound) == 0.5
    assert moved(clip, rows, groups, 0) > 1.5 * float(clip.sensitivity.bound)


@pytest.mark.parametrize("present", range(GROUPS))
def test_groupwise_sensitivity_is_the_largest_bound_of_all_groups(present):
    clip = after(CLIPS["groupwise"], [[9, 1, 5, 5, 0, 10]])
    norms, groups = torch.full((4,), 1e6, dtype=torch.float64), torch.full((4,), present)
    bound = (clip.factors(norms, groups) * norms)[0]
    assert float(clip.sensitivity.bound) == pytest.approx(float(clip.bounds[2]))
    assert bound == pytest.approx(float(clip.bounds[present]))
    assert (bound < clip.sensitivity.bound) == (present != 2)


def test_global_and_abadi_scale_what_is_within_and_shorten_or_drop_the_rest():
    norms = torch.tensor([0.0, 0.25, 0.5, 2.0])
    assert Abadi(0.5).factors(norms, norms).tolist() == [1, 1, 1, 0.25]
    norms = torch.tensor([0.0, 1.0, 20.0, 20.01])
    assert CLIPS["strict_global"].factors(norms, norms).tolist() == pytest.approx([0.025] * 3 + [0])
    norms = torch.tensor([0.0, 1.0, 20.0, 50.0])
    factors = CLIPS["global_adapt"].factors(norms, norms).tolist()
    assert factors == pytest.approx([0.025] * 3 + [0.01])


def test_global_adapt_counts_above_tau_z_and_groupwise_each_group_below_and_above_the_bound():
    norms = torch.tensor([13.9, 14.0, 14.1, 30.0])
    assert CLIPS["global_adapt"].counts(norms, norms).tolist() == [2]
    norms = torch.tensor([0.1, 0.5, 0.51, 7.0, 0.2])
    groups = torch.tensor([0, 0, 0, 2, 2])
    assert CLIPS["groupwise"].counts(norms, groups).tolist() == [2, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("count", [0.0, 3.0, -4.0])
def test_global_adapt_moves_z_by_the_noisy_share_less_eta(count):
    clip = CLIPS["global_adapt"].updated(torch.tensor([count]), 8.0)
    assert float(clip.strict_bound) == pytest.approx(20 * math.exp(-0.1 + count / 8))


# Shares r = 4/8, 1/4, 2/2; floors and clamps take the fractions and the negative count away.
@pytest.mark.parametrize(("clip", "typical"), [(PAPER, 7 / 8), (CLIPS["groupwise"], 1.75 / 3)])
def test_groupwise_bounds_follow_algorithm_3(clip, typical):
    clip = after(clip, [[4.2, 4.9, 3.0, 1.7, -2.5, 2.0]])
    expected = [0.5 * (1 + r / typical) for r in (0.5, 0.25, 1.0)]
    assert clip.bounds.tolist() == pytest.approx(expected)


def test_balanced_groups_agree_and_relative_count_noise_is_a_multiple():
    counts = torch.tensor([4.0, 4.0, 2.0, 6.0, 8.0, 0.0])
    paper, corrected = (clip.updated(counts, 24.0) for clip in (PAPER, CLIPS["groupwise"]))
    assert torch.allclose(paper.bounds, corrected.bounds)
    assert CountQuery(10.0, before=True, relative=True).multiplier(0.8) == 8
    assert CountQuery(10.0, before=True).multiplier(0.8) == 10


@pytest.mark.parametrize("counts", [[3.0, 5.0], [8.0, 1.0], [-7.0, 40.0], [0.0, 0.0]])
def test_one_group_has_twice_the_base_bound(counts):
    clip = Groupwise(0.5, ASK, published=False).bind(problem(Made(("all",))))
    assert clip.updated(torch.tensor(counts), 8.0).bounds.tolist() == pytest.approx([1.0])


def test_no_clip_promises_nothing_and_a_clip_for_other_groups_forgets_its_state():
    clip = after(CLIPS["groupwise"], [[1.0] * 6]).bind(problem(Made(tuple("abcde"))))
    assert clip.bounds is None
    assert len(clip.counts(torch.ones(2), torch.tensor([0, 4]))) == 10
    norms = torch.tensor([0.0, 1e9])
    assert Unclipped().sensitivity.bound == math.inf
    assert Unclipped().factors(norms, norms).tolist() == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Abadi(0.0),
        lambda: Abadi(math.nan),
        lambda: Abadi("1"),
        lambda: Global(1.0, -1.0),
        lambda: GlobalAdapt(1.0, 0.0, 1.0, 0.1, ASK),
        lambda: GlobalAdapt(1.0, 1.0, -1.0, 0.1, ASK),
        lambda: GlobalAdapt(1.0, 1.0, 1.0, 0.0, ASK),
        lambda: Groupwise(-1.0, ASK, published=False),
        lambda: CountQuery(0.0, before=True),
        lambda: Automatic(1.0, 0.0),
        lambda: BatchClip(0.0),
        lambda: Quantile(Abadi(1.0), 1.5, 0.2, ASK),
        lambda: Quantile(Abadi(1.0), 0.5, 0.0, ASK),
        lambda: make_clip("none", "flat", 0.0),
        lambda: make_clip("abadi", "layerwise", -1.0),
        lambda: make_clip("abadi", "layerwise", [1.0, 0.0]),
        lambda: Abadi(1e-13),
        lambda: Abadi(math.inf),
        lambda: Normalise(1.0).scaled(1e-13),
        lambda: Global(1.0, 1e-24),
        lambda: GlobalAdapt(1.0, 1e-24, 1.0, 0.1, ASK),
        lambda: Groupwise(1e13, ASK, published=False),
        lambda: Coordinates(1e-13),
        lambda: BatchClip(math.inf),
        lambda: make_clip("none", "flat", 1e13),
        lambda: make_clip("abadi", "layerwise", [1.0, 1e-13]),
    ],
)
def test_values_that_no_clip_can_have_are_refused(make):
    with pytest.raises(UserError, match=r"must be|is unknown"):
        make()


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("name", ["none", *CLIPS])
def test_a_norm_that_is_not_finite_has_factor_0_with_every_clip(name, bad):
    clip = CLIPS[name] if name != "none" else Unclipped(1.0)
    norms = clip.norms(stacked(torch.ones(4, DIMENSION)))
    groups = torch.zeros(4, dtype=torch.long)
    expected, all_finite = finite_factors(clip, norms, groups)
    assert all_finite.tolist() == [True] * 4
    norms[1] = bad
    factors, finite = finite_factors(clip, norms, groups)
    assert finite.tolist() == [True, False, True, True]
    assert not factors[1].any()
    if not clip.query:  # whose factors may depend on all norms
        assert torch.equal(factors[2:], expected[2:])


@pytest.mark.parametrize("shape", ["one", "column", "short", "number"])
def test_a_clip_that_gives_other_than_a_factor_for_each_norm_is_refused(shape):
    factors = {
        "one": lambda norms: norms.mean().reshape(1),
        "column": lambda norms: norms.unsqueeze(1),
        "short": lambda norms: norms[:-1],
        "number": lambda norms: 0.5,
    }

    class Wrong(Abadi):
        def factors(self, norms, groups):
            return factors[shape](norms)

    with pytest.raises(
        UserError, match=r"clip Wrong must give .* factor for each norm, \[3\], but"
    ):
        finite_factors(Wrong(1.0), torch.ones(3), torch.zeros(3, dtype=torch.long))
