import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.comparison.dashboard.values import SHOWN, audit_bound, epsilons
from dpbench.privacy.guarantee import WITH_EPSILON
from dpbench.runs.records.epsilon import NOT_COMPUTED, epsilon_or_reason
from dpbench.runs.records.record import OLDER_TERMS, Record

PROVEN = OLDER_TERMS | {"guarantee": "proven", "why": "", "delta": 1e-5, "steps": 1}

VALUES = st.one_of(st.none(), st.booleans(), st.text(), st.floats(), st.integers())


@pytest.mark.slow
@given(value=VALUES, guarantee=st.text() | st.sampled_from(["none", *WITH_EPSILON]))
def test_a_number_is_shown_only_where_the_guarantee_carries_it(value, guarantee):
    found = epsilon_or_reason({"guarantee": guarantee, "pld": value}, "pld")
    assert isinstance(found, str) or (
        guarantee in WITH_EPSILON and math.isfinite(found) and found >= 0
    )


def test_a_run_has_every_accountant():
    found = epsilons(Record({}, {}, PROVEN | {"pld": 1.0}, {}, "complete"))
    assert found == {"pld": 1.0, "rdp": NOT_COMPUTED, "gdp": NOT_COMPUTED}
    assert set(found) == set(SHOWN)


@pytest.mark.parametrize("audit", [None, 3.0, {}, {"epsilon": math.nan}, {"epsilon": "1"}])
def test_an_audit_without_a_number_is_none(audit):
    assert audit_bound(PROVEN | {"audit": audit}) is None


def test_an_audit_is_a_bound_with_a_verdict_that_refutes_a_claim():
    audit = {"epsilon": 1.5, "confidence": 0.95, "attack": "canary"}
    found = audit_bound(PROVEN | {"audit": audit})
    assert found == {"epsilon": 1.5, "confidence": 0.95, "refuted": None}
    # At 95% confidence one bound in twenty exceeds a claim that is true.
    audit = {"epsilon": 5.1, "confidence": 0.95, "claimed": 4.9, "verdict": "not refuted"}
    assert audit_bound(PROVEN | {"audit": audit})["refuted"] is None
    audit["verdict"] = "refuted"
    assert audit_bound(PROVEN | {"audit": audit})["refuted"] == 4.9
