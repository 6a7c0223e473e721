"""What every method says of itself: names, guarantee and statement of privacy."""

import dataclasses
import math

import pytest

from dpbench.privacy.guarantee import PRIVATE_DIVISOR, PROVEN
from dpbench.privacy.ledger import Exact, Ledger, Poisson, Shuffled, Step
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.prepare import build
from dpbench.runs.training.accounting import statement
from dpbench.step.clipping import Abadi, Unclipped
from dpbench.step.clipping.clip import CountQuery
from dpbench.step.mechanism.method import Inapplicable, Method
from dpbench.step.mechanism.update import Plain
from dpbench.step.methods.dicesgd import ErrorFeedback
from dpbench.step.methods.dpsgd_f import Groupwise
from dpbench.step.methods.raco import CountedRates
from dpbench.system.errors import UserError
from tests.problems import Made, problem
from tests.step.methods.every_method import (
    EPSILONS,
    MULTIPLIER,
    every,
    method_of,
    proven,
    settings_of,
    those,
)


@every
def test_a_method_is_named_as_its_file_and_guarantees_by_level_and_sentence(name, variant):
    method = method_of(name, variant)
    assert method.name == name.split()[0]
    assert method.variant == (variant or "corrected")
    guarantee = method_of(name, variant).guarantee
    assert guarantee.level in ("proven", "approximate", "none")
    assert guarantee.why.endswith(".")
    assert len(guarantee.why) > 20


@pytest.mark.parametrize("name", options("method"))
def test_the_variant_that_runs_by_default_is_the_corrected_one(name):
    assert settings_of(name).get("variant", "corrected") == "corrected"


@pytest.mark.parametrize("name", [n for n in options("method") if "variant" in settings_of(n)])
def test_an_unknown_variant_is_refused(name):
    with pytest.raises(UserError, match="did you mean corrected"):
        build(compose([f"method={name}", "method.variant=corected"]))


@proven
def test_a_proof_needs_noise_a_finite_sensitivity_and_a_public_divisor(name, variant):
    method = method_of(name, variant)
    assert method.private
    assert not method.by_real_size
    assert math.isfinite(method.clip.sensitivity.bound)


@those(lambda method: method.by_real_size)
def test_variants_with_a_private_divisor_have_no_guarantee(name, variant):
    assert method_of(name, variant).guarantee.level == "none"


class Exceeding(Plain):
    """An update after which an example may move the sum by twice what the noise is scaled by."""

    excess = 2.0


RATES = CountQuery(20.0, before=True)
BOUNDS_NOTHING = {
    "alone": Unclipped(),
    "with feedback": ErrorFeedback(Unclipped(), 0.1, 0.5),
    "with rates": CountedRates(Unclipped(), RATES),
    "by group, with the noise of the base bound": Groupwise(1.0, RATES, published=True),
}


@pytest.mark.parametrize("clip", BOUNDS_NOTHING.values(), ids=BOUNDS_NOTHING)
def test_a_clip_that_bounds_nothing_voids_every_basis_inside_others_too(clip):
    guarantee = Method("own", clip, PROVEN).guarantee
    assert guarantee.level == "none"
    assert guarantee.why == clip.sensitivity.caveat


def test_the_real_batch_size_as_divisor_voids_every_basis():
    assert Method("own", Abadi(1.0), PROVEN, by_real_size=True).guarantee == PRIVATE_DIVISOR


@pytest.mark.parametrize("more", [{"failure": 1e-6}, {"update": Exceeding()}])
def test_an_error_that_is_kept_has_no_account_beside_a_sensitivity_that_may_fail(more):
    made = Method("own", ErrorFeedback(Abadi(1.0), 0.1, 0.5), PROVEN, **more)
    with pytest.raises(UserError, match="own keeps an error from step to step"):
        made.releases(MULTIPLIER)


@every
def test_every_query_of_the_clip_is_in_the_ledger(name, variant):
    method = method_of(name, variant)
    mechanisms = [r.mechanism for r in method.releases(MULTIPLIER)]
    if not method.private:
        assert Exact() in mechanisms
    else:
        expected = [MULTIPLIER / method.excess]
        if method.clip.memory and method.clip.memory.share:
            expected = [*method.clip.memory.multipliers(MULTIPLIER)]
        if method.clip.query and not method.clip.query.joint:
            expected.append(method.clip.query.multiplier(MULTIPLIER))
        assert [mechanism.noise_multiplier for mechanism in mechanisms] == expected


@pytest.mark.sampled(47)
@every
@pytest.mark.parametrize("sampling", [Poisson(0.05), Shuffled(20)], ids=["poisson", "shuffled"])
def test_the_statement_shows_only_epsilons_that_the_guarantee_covers(name, variant, sampling):
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
        if method.clip.sensitivity.share == 1:  # of which only RDP makes use
            assert says["pld"] <= says["rdp"]
        if method.own_accountant is None:
            assert says["claimed"] <= says["rdp"]
    if isinstance(sampling, Poisson):
        assert says["guarantee"] == method.guarantee.level


@those(lambda method: method.groups is not None)
def test_a_method_for_a_number_of_groups_refuses_other_data(name, variant):
    method = method_of(name, variant)
    with pytest.raises(Inapplicable, match=f"exactly {method.groups} groups"):
        method.bind(problem(Made(("a",) * (method.groups + 1))))
