"""What every method of the suite must do, found by its YAML file: a new one is tested as it is.

A method whose guarantee is "proven" has to show it: one example moves what the noise is added to by
no more than the sensitivity that the noise reads, and the noise is as large as the ledger hears.

Methods take other clips: dpsgd is tested with each of them as it is by itself, and the others show
that their proofs hold with each.
"""

import dataclasses
import itertools
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpbench.clipping import CLIPS, STYLES
from dpbench.config import buildable
from dpbench.config.compose import compose, options
from dpbench.data.dataset import Batch
from dpbench.data.derive.users import iid
from dpbench.errors import UserError
from dpbench.execution.prepare import build
from dpbench.mechanism.method import Inapplicable, Method, ReleasedState
from dpbench.paths import conf_folder
from dpbench.privacy.ledger import CoordinateMechanism, Exact, Ledger, Poisson, Shuffled, Step
from dpbench.privacy.toeplitz import encoded
from dpbench.training.budget import statement

VARIANTS = ("corrected", "paper")
EPSILONS = ("rdp", "pld", "gdp")
MULTIPLIER, EXPECTED = 0.9, 8.0
SIZE = 579  # parameters of the model of step_of


@cache
def settings_of(name: str) -> dict:
    """As the file has them: composing takes a second for all, in every worker."""
    file = conf_folder() / "method" / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def cases() -> list:
    """(method, variant), with no variant for methods that have none."""
    return [
        pytest.param(name, variant, id=f"{name}-{variant}" if variant else name)
        for name in options("method")
        for variant in (VARIANTS if "variant" in settings_of(name) else [None])
    ]


def combinations(name: str) -> list[str]:
    """As "NAME clip=CLIP style=STYLE", all that can be combined with a method beside its own."""
    if not isinstance(settings_of(name).get("clip"), str):
        return []
    refused = {("abadi", "flat"), ("batch", "layerwise")}  # the first is the method itself
    if name in ("dpsgd_quantile", "dpsgd_bounded"):
        refused |= set(itertools.product(("batch", "none"), STYLES))
    pairs = [pair for pair in itertools.product(CLIPS, STYLES) if pair not in refused]
    return [f"{name} clip={clip} style={style}" for clip, style in pairs]


@dataclasses.dataclass
class Made:
    """As much of a data set as a method asks for."""

    groups: tuple[str, ...]
    name: str = "made"
    train_size: int = 80  # of 20 users four each, as many as the largest of users_of
    task: str = "classification"
    classes: int = 3


@cache
def method_of(name: str, variant: str | None) -> Method:
    """The method of a YAML file, on data with as many groups as it needs."""
    name, *others = name.split()
    overrides = dict(other.split("=") for other in others)
    own = {"variant": variant} if variant else {}
    method = buildable.build("method", {**settings_of(name), **own, **overrides})
    users = iid(20, 0.0) if method.users_only else None
    fitted = method.on(Made(tuple("abc"[: method.groups or 3])), users).for_size(SIZE)
    return fitted.for_layers(["0", "2"])


def other_clips(*names: str) -> list:
    """The combinations of these methods as cases."""
    return [pytest.param(one, None, id=one) for name in names for one in combinations(name)]


def proofs(cases: list) -> list:
    return [case for case in cases if method_of(*case.values).guarantee.level == "proven"]


APART = pytest.param("dpsgd style=layerwise", "paper", id="dpsgd style=layerwise-paper")
EVERY = [*cases(), APART, pytest.param("dpsgd clip=batch style=flat", None, id="dpsgd clip=batch")]
every = pytest.mark.parametrize(("name", "variant"), EVERY)
proven = pytest.mark.parametrize(("name", "variant"), proofs(EVERY))
proven_anywhere = pytest.mark.parametrize(
    ("name", "variant"), proofs(cases() + other_clips(*options("method")))
)
with_counts = pytest.mark.parametrize(
    ("name", "variant"),
    [
        case
        for case in proofs([*EVERY, *other_clips("dpsgd_quantile", "dpsgd_bounded")])
        if method_of(*case.values).clip.query is not None
    ],
)


def those(holds):
    """A mark for a test of the methods for which something holds; there must be some."""
    cases = [case for case in EVERY if holds(method_of(*case.values))]
    assert cases
    return pytest.mark.parametrize(("name", "variant"), cases)


private = those(lambda method: method.private)


class Heard:
    """A noise that is another one, and notes each sum, sensitivity and result."""

    def __init__(self, noise):
        self.noise, self.private, self.calls = noise, noise.private, []
        self.bands = noise.bands

    def given(self, total, stream):
        self.noise = self.noise.given(total, stream)
        return self

    def add(self, total, sensitivity, multiplier, stream):
        before = total.clone()
        noisy = self.noise.add(total, sensitivity, multiplier, stream)
        self.calls.append((before, float(sensitivity), noisy.clone()))
        return noisy

    def mechanism(self, multiplier):
        return self.noise.mechanism(multiplier)

    def independent(self, rows):
        """The draws that noise of these steps was made of: C w, where w is correlated."""
        c = getattr(self.noise, "coefficients", (1.0,))
        if self.bands is None:
            buffers = self.noise.decays, self.noise.weights
            c = encoded(*buffers, np.eye(1, len(rows))[0]).tolist()
        return [
            sum(c[k] * rows[t - k] for k in range(min(len(c), t + 1))) for t in range(len(rows))
        ]

    def spread(self, multiplier):
        """The standard deviation of the law that the ledger hears of, over the sensitivity."""
        mechanism = self.mechanism(multiplier)
        law = mechanism.noise if isinstance(mechanism, CoordinateMechanism) else "gaussian"
        of_scale = {"gaussian": 1.0, "logistic": math.pi / math.sqrt(3), "laplace": math.sqrt(2)}
        return of_scale[law] * mechanism.noise_multiplier


class Held:
    """A clip in a state that was reached by some answers, and that later answers do not move."""

    def __init__(self, clip, answers: list):
        nobody = SimpleNamespace(
            norms=torch.zeros(0),
            layer_norms=torch.zeros(0, 2),
            histogram=torch.zeros(getattr(clip, "cells", 0) * getattr(clip, "classes", 0)),
        )
        size = len(clip.answer(nobody, clip.norms(nobody), torch.zeros(0, dtype=torch.long)))
        for answer in answers:
            clip = clip.updated(torch.tensor(answer[:size], dtype=torch.float64), EXPECTED)
        self._clip, self.answers = clip, []

    def __getattr__(self, name):
        return getattr(self._clip, name)

    def updated(self, counts, expected_batch_size):
        self.answers.append(counts)
        return self

    def carried(self, total):
        return self


def listening(method: Method, **changes) -> Method:
    return dataclasses.replace(method, noise=Heard(method.noise), **changes)


@pytest.fixture(scope="module")
def examples_for(batch_of, users_of):
    """examples_for(method, n): a batch in the groups that the method knows, or of users."""

    def make(method: Method, n: int, seed: int = 0) -> Batch:
        if method.users_only:
            return users_of(n, seed=seed)
        return batch_of(n, groups=method.groups or 3, seed=seed)

    return make


def theta(step) -> torch.Tensor:
    return step.engine.parameters.theta.detach().clone()


# What a method says of itself.


@every
def test_a_method_is_named_as_its_file_and_variant(name, variant):
    method = method_of(name, variant)
    assert method.name == name.split()[0]
    assert method.variant == (variant or "corrected")


@pytest.mark.parametrize("name", options("method"))
def test_the_variant_that_runs_by_default_is_the_corrected_one(name):
    assert settings_of(name).get("variant", "corrected") == "corrected"


@pytest.mark.parametrize("name", [n for n in options("method") if "variant" in settings_of(n)])
def test_an_unknown_variant_is_refused(name):
    with pytest.raises(UserError, match="did you mean corrected"):
        build(compose([f"method={name}", "method.variant=corected"]))


@every
def test_a_guarantee_has_a_level_and_a_sentence(name, variant):
    guarantee = method_of(name, variant).guarantee
    assert guarantee.level in ("proven", "approximate", "none")
    assert guarantee.why.endswith(".")
    assert len(guarantee.why) > 20


@proven
def test_a_proof_needs_noise_a_finite_sensitivity_and_a_public_divisor(name, variant):
    method = method_of(name, variant)
    assert method.private
    assert method.divide_by == "expected"
    assert math.isfinite(method.clip.sensitivity)


@those(lambda method: method.divide_by == "actual")
def test_what_is_published_with_a_private_divisor_has_no_guarantee(name, variant):
    assert method_of(name, variant).guarantee.level == "none"


@every
def test_every_query_of_the_clip_is_in_the_ledger(name, variant):
    method = method_of(name, variant)
    mechanisms = [r.mechanism for r in method.releases(MULTIPLIER)]
    if not method.private:
        assert Exact() in mechanisms
    else:
        expected = [MULTIPLIER / method.excess]
        if method.clip.memory:
            expected = [*method.clip.memory.multipliers(MULTIPLIER)]
        if method.clip.query and not method.clip.query.joint:
            expected.append(method.clip.query.multiplier(MULTIPLIER))
        assert [mechanism.noise_multiplier for mechanism in mechanisms] == expected


@every
@pytest.mark.parametrize("sampling", [Poisson(0.05), Shuffled(20)], ids=["poisson", "shuffled"])
def test_the_statement_shows_epsilons_only_as_far_as_the_guarantee_goes(name, variant, sampling):
    method = method_of(name, variant)
    multiplier = (4.0 if method.noise.bands is None else 1.0) * method.excess
    if isinstance(sampling, Poisson):
        sampling = dataclasses.replace(sampling, cycle=method.noise.bands or 5)
    book = Ledger().after(Step(sampling, method.releases(multiplier)), 20)
    says = statement(book, method, 1e-5, multiplier)
    shown = [says[key] for key in EPSILONS]
    if not method.private:
        assert [*shown, says["claimed"]] == [math.inf] * 4
    elif isinstance(sampling, Shuffled):
        assert says["guarantee"] == "none"
        assert [*shown, says["claimed"]] == [None] * 4
    elif method.guarantee.level == "none":
        assert shown == [None] * 3
        assert 0 < says["claimed"] < math.inf
    else:
        assert all(0 < epsilon < math.inf for epsilon in shown)
        assert says["pld"] <= says["rdp"]
        if method.claimed_by is None:
            assert says["claimed"] <= says["rdp"]
    if isinstance(sampling, Poisson):
        assert says["guarantee"] == method.guarantee.level


@those(lambda method: method.groups is not None)
def test_a_method_for_a_number_of_groups_refuses_other_data(name, variant):
    method = method_of(name, variant)
    with pytest.raises(Inapplicable, match=f"exactly {method.groups} groups"):
        method.on(Made(("a",) * (method.groups + 1)))


# What a method does in a step.

answers = st.lists(st.lists(st.floats(-50, 500), min_size=9, max_size=9), max_size=2)


def neighbours(batch: Batch, i: int) -> Batch:
    return batch.each(lambda t: torch.cat([t[:i], t[i + 1 :]]))


sizes, seeds = st.integers(1, 8), st.integers(0, 10**6)


@proven_anywhere
@given(sizes, seeds, st.sampled_from([0.1, 1.0, 1e3]), answers)
@example(
    8, 0, 1e3, [[9, 0, 9, 0, 0, 9, 0, 0, 0]]
)  # the gradients of one group were long, and all are now
@settings(derandomize=True, deadline=None, max_examples=5)
def test_one_example_moves_the_sum_before_noise_by_at_most_what_the_noise_reads(
    step_of, examples_for, name, variant, n, seed, size, answers
):
    method = method_of(name, variant)
    method = listening(method, clip=Held(method.clip, answers))
    batch = examples_for(method, n, seed)
    batch.inputs.mul_(size)
    step = step_of(method, multiplier=MULTIPLIER, lr=0.0)
    released = torch.linspace(-1, 1, len(step.engine.parameters), dtype=torch.float64)
    for one in (batch, *(neighbours(batch, i) for i in range(n))):
        step.released = ReleasedState(1, 2, released)  # which all neighbours share
        step(one)
    (total, sensitivity, _), *others = method.noise.calls
    for other, same, _ in others:
        assert sensitivity == same  # or the noise itself would tell the batches apart
        assert (total - other).norm() <= method.excess * sensitivity * (1 + 1e-9)


@with_counts
@given(sizes, seeds, answers)
@settings(derandomize=True, deadline=None, max_examples=5)
def test_one_example_moves_the_counts_by_at_most_one(
    step_of, batch_of, name, variant, n, seed, answers
):
    method = method_of(name, variant)
    held = Held(method.clip, answers)
    step = step_of(dataclasses.replace(method, clip=held), multiplier=MULTIPLIER, lr=0.0)
    batch = batch_of(n, groups=method.groups or 3, seed=seed)
    start = step.counts.state_dict()
    for one in (batch, *(neighbours(batch, i) for i in range(n))):
        step.counts.load_state_dict(start)
        step(one)
    assert len(held.answers) == n + 1
    for other in held.answers[1:]:
        # Noise is added before the sum is rounded to the grid of `dpbench.mechanism.noise`.
        assert (held.answers[0] - other).norm() <= 1 + 1e-4


def test_the_paper_variant_of_dpsgd_f_fails_the_property_and_says_so(step_of, batch_of):
    method = method_of("dpsgd_f", "paper")
    assert method.guarantee.level == "none"
    # A group whose gradients were all long, beside one whose were short: its C_k is above C0.
    method = listening(method, clip=Held(method.clip, [[9, 0, 9, 0, 0, 3]]))
    batch = dataclasses.replace(batch_of(3), groups=torch.tensor([0, 1, 2]))
    step = step_of(method, multiplier=MULTIPLIER, lr=0.0)
    step(batch)
    step(neighbours(batch, 2))
    (one, sensitivity, _), (other, _, _) = method.noise.calls
    assert (one - other).norm() > 1.5 * sensitivity


@private
@pytest.mark.parametrize("examples", [0, 9])
@pytest.mark.parametrize("physical", [None, 2])
def test_the_noise_is_one_draw_as_large_as_the_ledger_hears(
    step_of, examples_for, variance_p, name, variant, examples, physical
):
    method = listening(method_of(name, variant))
    physical = None if method.whole_batches else physical
    step = step_of(method, multiplier=MULTIPLIER, physical=physical)
    heard = method.noise.spread(MULTIPLIER)
    noise = []
    for seed in range(8):
        step(examples_for(method, examples, seed))
        total, sensitivity, noisy = method.noise.calls[-1]
        noise.append((noisy - total) / sensitivity)
    assert len(method.noise.calls) == 8
    noise = method.noise.independent(noise)
    assert variance_p(torch.cat(noise), heard) > 1e-3
    assert variance_p(torch.cat(noise), heard * 2 / 3) < 1e-6
    assert variance_p(torch.cat(noise), heard * 3 / 2) < 1e-6


@proven
def test_the_update_is_that_of_the_noisy_sum_over_the_expected_batch_size(
    step_of, examples_for, name, variant
):
    method = listening(method_of(name, variant))
    step = step_of(method, multiplier=MULTIPLIER, expected=EXPECTED, lr=0.1)
    update = method.update
    for n in (0, 5, 20):
        start, scale = theta(step), step.clip.sensitivity * MULTIPLIER / EXPECTED
        step(examples_for(method, n))
        noisy = method.noise.calls[-1][2]
        widths = step.clip.widths(step.engine.parameters.layers, noisy)
        mean = noisy * (1 if widths is None else widths) / EXPECTED
        update = update.given(mean, scale * (1 if widths is None else widths), start)
        mean = update(mean.clone(), start)
        assert torch.allclose(theta(step), start - 0.1 * mean, rtol=1e-10, atol=1e-12)


@those(lambda method: method.private and method.clip.query is not None)
def test_counts_have_the_noise_that_the_ledger_hears(step_of, batch_of, variance_p, name, variant):
    method = method_of(name, variant)
    held = Held(method.clip, [])
    step = step_of(dataclasses.replace(method, clip=held), multiplier=MULTIPLIER, lr=0.0)
    for _ in range(400):
        step(batch_of(0))
    heard = method.releases(MULTIPLIER)[-1].mechanism.noise_multiplier
    noise = torch.stack(held.answers)
    assert variance_p(noise, heard) > 1e-3
    assert variance_p(noise, heard * 2 / 3) < 1e-6
    assert variance_p(noise, heard * 3 / 2) < 1e-6


@those(lambda method: not method.whole_batches)
@pytest.mark.parametrize("physical", [1, 4])
def test_physical_batches_change_nothing_but_rounding(
    step_of, examples_for, name, variant, physical
):
    method = method_of(name, variant)
    whole, parts = (step_of(method, physical=p) for p in (None, physical))
    for seed, n in enumerate((9, 0, 4)):
        whole(examples_for(method, n, seed))
        parts(examples_for(method, n, seed))
    assert torch.allclose(theta(whole), theta(parts), rtol=1e-9, atol=1e-12)


@every
@pytest.mark.parametrize("engine", ["ghost", "vmap"])
def test_a_method_does_not_know_which_engine_runs(step_of, examples_for, name, variant, engine):
    method = method_of(name, variant)
    ours, reference = (step_of(method, engine=e) for e in (engine, "loop"))
    for seed in range(2):
        ours(examples_for(method, 6, seed))
        reference(examples_for(method, 6, seed))
    assert torch.allclose(theta(ours), theta(reference), rtol=1e-8, atol=1e-11)


@every
def test_a_step_on_an_empty_batch_is_a_step(step_of, examples_for, name, variant):
    method = method_of(name, variant)
    step = step_of(method)
    start = theta(step)
    step(examples_for(method, 0))
    assert theta(step).isfinite().all()
    assert torch.equal(theta(step), start) != method.private  # noise, or nothing at all


@every
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_an_example_that_is_not_finite_is_counted_and_poisons_nothing(
    step_of, examples_for, name, variant, bad
):
    method = method_of(name, variant)
    step, batch = step_of(method), examples_for(method, 5)
    batch.inputs[2] = bad
    assert step(batch).finite.tolist() == [True, True, False, True, True]
    assert theta(step).isfinite().all()
    batch.inputs.fill_(bad)
    assert not step(batch).finite.any()
    assert theta(step).isfinite().all()


@every
def test_the_same_seeds_make_the_same_parameters_to_the_bit(step_of, examples_for, name, variant):
    method = method_of(name, variant)
    ends = []
    for _ in range(2):
        step = step_of(method)
        for seed in range(4):
            step(examples_for(method, 7, seed))
        ends.append(theta(step))
    assert torch.equal(*ends)


@every
def test_a_method_keeps_no_state_of_its_own(step_of, examples_for, name, variant):
    method = method_of(name, variant)
    before = str(method)
    step = step_of(method)
    step(examples_for(method, 7))
    assert str(method) == before
    assert step.method is method
