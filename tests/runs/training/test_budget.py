"""Budgets, and what is said of an epsilon: never more than the method's guarantee allows."""

import json
import math

import pytest

from dpbench.learning.data.derive.users import Units
from dpbench.privacy.accountants import SPENT, gdp, note, pld, rdp
from dpbench.privacy.entries import Unaccountable, one_batch_per_release
from dpbench.privacy.ledger import Ledger, Poisson, Shuffled, Step, from_plain
from dpbench.runs.training.accounting import statement
from dpbench.runs.training.budget import PlannedSteps, Privacy
from dpbench.step.mechanism.method import Method
from dpbench.step.methods.dp_losgd import dp_losgd, dp_signlosgd
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.step.methods.sgd import sgd
from dpbench.system.errors import UserError
from tests.problems import problem

DELTA, RATE, STEPS = 1e-5, 0.02, 200
POISSON = Poisson(RATE)
NUMBERS = ("rdp", "pld", "gdp", "claimed")
ADAPT = dpsgd_global_adapt(1.0, 50.0, 1.0, 0.1, 3.0, "corrected")


def ledger(method: Method, sampling=POISSON, sigma: float = 1.0) -> Ledger:
    return Ledger().after(Step(sampling, method.releases(sigma)), STEPS)


def said(method: Method, sampling=POISSON) -> dict:
    return statement(ledger(method, sampling), method, DELTA, 1.0)


def noise(multiplier: float = 1.0) -> Privacy:
    return Privacy(noise_multiplier=multiplier, epsilon=None, delta=DELTA, accountant="rdp")


def target(epsilon: float, accountant: str = "rdp") -> Privacy:
    return Privacy(noise_multiplier=None, epsilon=epsilon, delta=DELTA, accountant=accountant)


def test_a_given_multiplier_is_used_and_a_large_delta_is_warned_of():
    assert noise(0.8).multiplier(PlannedSteps(dpsgd(1.0, "corrected"), Poisson(RATE), STEPS)) == 0.8
    says = statement(Ledger(), dpsgd(1.0, "corrected"), DELTA, 1.0)
    assert (says["rdp"], says["pld"], says["gdp"], says["steps"]) == (0, 0, 0, 0)
    with pytest.warns(UserWarning, match="above 1/n"):
        noise().warn_if_weak(Units("example", 100_001, ()))
    noise().warn_if_weak(Units("example", 100_000, ()))  # exactly 1/n


@pytest.mark.slow
@pytest.mark.parametrize("accountant", ["rdp", pytest.param("pld", marks=pytest.mark.slow)])
def test_a_target_epsilon_is_met_with_all_side_queries_paid(accountant):
    sigma = target(2.0, accountant).multiplier(PlannedSteps(ADAPT, Poisson(RATE), STEPS))
    spent = {"rdp": rdp, "pld": pld}[accountant](ledger(ADAPT, sigma=sigma), DELTA)
    assert 1.98 <= spent <= 2.0


def test_a_target_epsilon_under_shuffled_batches_is_refused_and_none_is_said():
    with pytest.raises(UserError, match="sampler=poisson"):
        target(2.0).multiplier(PlannedSteps(ADAPT, Shuffled(10), STEPS))
    says = said(dpsgd(1.0, "corrected"), Shuffled(256))
    assert says["guarantee"] == "none"
    assert "shuffled" in says["why"]
    assert [says[name] for name in NUMBERS] == [None] * 4
    assert says["refused"] == {}
    assert says["sample_rate"] is None


@pytest.mark.parametrize("privacy", [noise(), target(2.0)])
def test_a_method_without_noise_has_multiplier_zero(privacy):
    assert privacy.multiplier(PlannedSteps(sgd(), Poisson(RATE), STEPS)) == 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"noise_multiplier": None}, "either noise_multiplier or epsilon"),
        ({"epsilon": 1.0}, "either noise_multiplier or epsilon"),
        ({"noise_multiplier": 0}, "privacy.noise_multiplier must be a positive"),
        ({"noise_multiplier": "1"}, "privacy.noise_multiplier must be a positive"),
        ({"noise_multiplier": None, "epsilon": -1}, "privacy.epsilon must be a positive"),
        ({"delta": 0}, "privacy.delta must be a number between 0 and 1"),
        ({"delta": 1.0}, "privacy.delta must be a number between 0 and 1"),
        ({"delta": True}, "privacy.delta must be a number"),
        ({"delta": "1e-5"}, "privacy.delta must be a number"),
        ({"accountant": "gdp"}, "privacy.accountant=gdp is an approximation"),
        ({"accountant": "rpd"}, "did you mean rdp"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(changes, match):
    sound = {"noise_multiplier": 1.0, "epsilon": None, "delta": DELTA, "accountant": "rdp"}
    with pytest.raises(UserError, match=match):
        Privacy(**(sound | changes))


def test_a_proven_method_says_all_epsilons_and_another_only_what_is_claimed():
    says, book = said(ADAPT), ledger(ADAPT)
    assert says["guarantee"] == "proven"
    assert says["rdp"] == rdp(book, DELTA)
    assert says["pld"] == pld(book, DELTA) <= says["rdp"]
    assert says["claimed"] == rdp(one_batch_per_release(book), DELTA) < says["rdp"]
    assert 0 < says["gdp"] < math.inf
    says = said(dpsgd(1.0, "paper"))
    assert says["guarantee"] == "none"
    assert [says[name] for name in ("rdp", "pld", "gdp")] == [None] * 3
    assert says["claimed"] == rdp(ledger(dpsgd(1.0, "corrected")), DELTA)


def test_a_paper_s_epsilon_is_by_its_own_accountant_and_the_note_s_by_its_formula():
    book, method = ledger(ADAPT), ADAPT
    apart = one_batch_per_release(book)
    for by, accountant in (("rdp", rdp), ("gdp", gdp)):
        says = statement(book, method, DELTA, 1.0, paper_accountant=by)
        assert (says["claimed"], says["claimed_by"]) == (accountant(apart, DELTA), by)
    assert statement(book, method, DELTA, 1.0, paper_accountant="note")["claimed"] is None
    method = dp_signlosgd(0.01).bind(problem(size=500))
    says = statement(ledger(method), method, DELTA, 1.0, paper_accountant="gdp")
    assert says["claimed_by"] == "note"
    assert says["claimed"] == note(ledger(method), DELTA)
    whole = dp_losgd(0.01).bind(problem(size=500))
    assert statement(ledger(whole), whole, DELTA, 1.0)["claimed"] is None  # it has no formula


@pytest.mark.parametrize("sampling", [Poisson(RATE), Shuffled(256)])
def test_a_method_that_is_not_private_says_infinity(sampling):
    says = said(sgd(), sampling)
    assert says["guarantee"] == "none"
    assert "Not private" in says["why"]
    assert [says[name] for name in NUMBERS] == [math.inf] * 4


def test_a_statement_says_what_it_is_about():
    says = said(ADAPT)
    assert says["adjacency"] == "add or remove one example"
    assert says["unit"] == "example"
    assert (says["delta"], says["noise_multiplier"]) == (DELTA, 1.0)
    assert (says["sample_rate"], says["steps"]) == (RATE, STEPS)
    gaussian = {"law": "GaussianMechanism"}
    assert says["ledger"] == [
        {
            "times": STEPS,
            "sampling": {"law": "Poisson", "rate": RATE, "unit": "example"},
            "releases": [
                {"what": "gradient sum", "mechanism": gaussian | {"noise_multiplier": 1.0}},
                {"what": "counts for the clip", "mechanism": gaussian | {"noise_multiplier": 3.0}},
            ],
        }
    ]
    assert from_plain(json.loads(json.dumps(says))["ledger"]) == ledger(ADAPT)


@pytest.mark.parametrize("name", ["rdp", "pld"])
def test_an_accountant_without_a_bound_is_none_with_its_reason(name, monkeypatch):
    def fail(*_):
        raise Unaccountable("nothing found.")

    monkeypatch.setitem(SPENT, name, fail)
    says = said(dpsgd(1.0, "corrected"))
    (other,) = {"rdp", "pld"} - {name}
    assert says[name] is None
    assert says["refused"] == {name: "nothing found."}
    assert says[other] > 0
    json.dumps(says)


def test_without_any_bound_there_is_no_statement(monkeypatch):
    def failing(reason: str):
        def fail(*_):
            raise Unaccountable(reason)

        return fail

    for reasons in (("none found.", "nor here."), ("none found.", "none found.")):
        for name, reason in zip(("rdp", "pld"), reasons, strict=True):
            monkeypatch.setitem(SPENT, name, failing(reason))
        with pytest.raises(Unaccountable) as error:
            said(dpsgd(1.0, "corrected"))
        assert str(error.value) == " ".join(dict.fromkeys(reasons))
