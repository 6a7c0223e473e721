"""Two sides by seed: the verdict, the reasons why none follows, and ranks."""

import math
from dataclasses import replace

import pytest

from dpbench.comparison.compare.pairs import against, compare, doubts_of, ranks
from dpbench.comparison.compare.side import AT_EDGE, ELSEWHERE, Budget, Side, Tuning
from dpbench.comparison.compare.verdict import BETTER, EQUIVALENT, UNDECIDED, WORSE

NOISE = (0.0, 0.3, -0.2, 0.1, -0.3, 0.2)
MIRRORED = {BETTER: WORSE, WORSE: BETTER, EQUIVALENT: EQUIVALENT, UNDECIDED: UNDECIDED}
TERMS = (1e-5, "example", False)


def side(name, mean, turn=1, **more):
    """Accuracies in percent around a mean."""
    values = {seed: mean + turn * noise for seed, noise in enumerate(NOISE)}
    return Side(name, values, (Budget(3.0, TERMS),), {"epochs": 10}, **more)


BASE = side("dpsgd", 80.0)
AHEAD, LEVEL, BEHIND = (side("bam", mean, 0.7) for mean in (85.0, 80.01, 75.0))


def told(one, other, metric="test/accuracy"):
    """The verdict on a pair, and its reason."""
    (found,) = compare({"": (one, other)}, metric).values()
    return found.verdict, found.reason


@pytest.mark.parametrize(
    ("one", "verdict"), [(AHEAD, BETTER), (LEVEL, EQUIVALENT), (BEHIND, WORSE)]
)
def test_the_other_side_has_the_mirrored_verdict(one, verdict):
    assert told(one, BASE) == (verdict, "")
    assert told(BASE, one) == (MIRRORED[verdict], "")


def test_the_other_side_of_a_design_differs_in_what_it_says_and_less_may_be_better():
    assert told(AHEAD, BASE, "test/loss") == (WORSE, "")
    assert told(replace(AHEAD, budgets=(Budget("not private"),)), BASE) == (BETTER, "")
    one, other = (replace(s, design="table, dutch") for s in (AHEAD, BASE))
    assert told(replace(one, settings={"epochs": 20}), other) == (BETTER, "")
    lost = replace(BEHIND, values={**BEHIND.values, 3: math.nan})
    assert told(lost, BASE) == (UNDECIDED, "a run of bam diverged")


def test_training_without_privacy_is_no_method_to_choose_and_read_apart():
    """The report has no verdict on it, and no other page may have another on the methods."""
    near = replace(BASE, values={seed: 80.5 + 3 * noise for seed, noise in enumerate(NOISE)})
    private, free = replace(near, name="bam"), replace(near, budgets=(Budget("not private"),))
    unclear = replace(near, values={seed: 80 + 9 * noise for seed, noise in enumerate(NOISE)})
    assert shown(bam=private) == shown(bam=private, sgd=free) == [BETTER]
    assert shown(bam=private, dpsat=unclear) == [UNDECIDED, UNDECIDED]


def shown(**sides):
    """The verdicts on methods beside the baseline, without those on training without privacy."""
    found = compare({name: (one, BASE) for name, one in sides.items()}, "test/accuracy")
    return [judged.verdict for name, judged in found.items() if name != "sgd"]


AGAINST_ANY = {
    "other epochs": {"settings": {"epochs": 20}},
    "other delta": {"budgets": (Budget(3.0, (1e-6, "example", False)),)},
    "other unit of privacy, adjacency": {"budgets": (Budget(3.0, (1e-5, "user", True)),)},
    "epsilon: no proof": {"budgets": (Budget("no proof"),)},
    "equal by construction": {"tuning": Tuning(20, equals="dpsgd")},
}


@pytest.mark.parametrize("one", [AHEAD, LEVEL, BEHIND])
@pytest.mark.parametrize("reason", AGAINST_ANY)
def test_some_reasons_speak_against_any_verdict(one, reason):
    changed = replace(one, **AGAINST_ANY[reason])
    assert told(changed, BASE) == told(BASE, changed) == (UNDECIDED, reason)


AGAINST_A_LOSS = {
    "bam was tuned at the edge of its range": Tuning(20, AT_EDGE),
    "bam was tuned under another condition": Tuning(20, ELSEWHERE),
    "the search of bam did not try dpsgd, which it contains": Tuning(20, unsearched="dpsgd"),
    "fewer trials: bam 9, dpsgd 20": Tuning(9),
}


@pytest.mark.parametrize("reason", AGAINST_A_LOSS)
def test_some_reasons_excuse_a_loser_and_what_is_level_whatever_the_sign_of_the_mean(reason):
    base = replace(BASE, tuning=Tuning(20))
    for one in (
        BEHIND,
        LEVEL,
        replace(LEVEL, values={s: v - 0.02 for s, v in LEVEL.values.items()}),
    ):
        assert told(replace(one, tuning=AGAINST_A_LOSS[reason]), base) == (UNDECIDED, reason)
    assert told(replace(AHEAD, tuning=AGAINST_A_LOSS[reason]), base) == (BETTER, "")


def test_a_method_cannot_lose_by_its_search_alone_and_untuned_losers_are_called_so():
    """A quantile of clipping contains a constant bound: eleven points behind is a search."""
    quantile = replace(side("dpsgd_quantile", 68.5, 0.7), tuning=Tuning(64, unsearched="dpsgd"))
    assert told(quantile, replace(BASE, tuning=Tuning(64)))[0] == UNDECIDED
    tried = replace(quantile, tuning=Tuning(64))
    assert told(tried, replace(BASE, tuning=Tuning(64))) == (WORSE, "")
    one, other = (replace(s, tuning=Tuning(0)) for s in (BEHIND, BASE))
    (found,) = compare({"": (one, other)}, "test/accuracy").values()
    assert found.words == "worse, untuned"


@pytest.mark.parametrize(
    ("epsilon", "ahead", "behind"), [(3.1, BETTER, WORSE), (3.2, UNDECIDED, WORSE)]
)
def test_no_side_wins_by_a_larger_epsilon(epsilon, ahead, behind):
    budgets = (Budget(epsilon, TERMS),)
    assert told(replace(AHEAD, budgets=budgets), BASE)[0] == ahead
    assert told(replace(BEHIND, budgets=budgets), BASE)[0] == behind


def test_a_reason_holds_before_anybody_looks_at_the_results():
    base, tuned = replace(BASE, tuning=Tuning(20)), Tuning(9, AT_EDGE)
    found = {doubts_of(replace(one, tuning=tuned), base) for one in (AHEAD, LEVEL, BEHIND)}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("again", "verdict"), [(78.0, BETTER), (84.99, UNDECIDED), (90.0, UNDECIDED)]
)
def test_a_verdict_must_be_shown_beside_both_searches_of_the_baseline(again, verdict):
    sides = {"bam": AHEAD, "dpsgd": BASE}
    found = against(sides, "dpsgd", "test/accuracy", [side("dpsgd", again)])["bam"]
    assert found.verdict == verdict
    assert found.reason == ("" if verdict == BETTER else "not shown beside a second search")


def test_ranks_follow_from_all_pairs_that_have_a_common_seed_and_a_direction():
    sides = {"bam": AHEAD, "dpsgd": BASE, "level": side("level", 80.2, 0.5), "last": BEHIND}
    assert ranks(sides, "test/accuracy") == {
        "bam": (1, 1), "dpsgd": (2, 3), "level": (2, 3), "last": (4, 4),
    }  # fmt: skip
    assert compare({"": (replace(AHEAD, values={9: 85.0}), BASE)}, "test/accuracy") == {}
    assert compare({"": (AHEAD, BASE)}, "test/none_known") == {}
