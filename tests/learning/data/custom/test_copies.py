"""People with several rows, rows that are there twice, and test rows that are in training."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.learning.data.custom.identifiers import repeating
from dpbench.learning.data.custom.oddities import expected_pairs, identical
from dpbench.runs.config.compose import compose
from tests.learning.data.custom.tables import settings

N = 120
DRAWS = np.random.default_rng(0)
OF_24 = np.repeat(np.arange(24), 5)

IDENTIFIERS = {
    "patient_nbr": OF_24 + 82637451,
    "id_student": DRAWS.integers(10**4, 10**5, 100).tolist() + [7] * 20,
    "PatientID": OF_24,
    "subject": OF_24 % 12,
    "person": [f"P{n:03}" for n in OF_24],
    "who": [f"P{n:03}" for n in OF_24],
    "mail": [f"a{n}@b.org" for n in OF_24],
    "CustomerKey": OF_24.astype(float),
    "household": OF_24 + 100,
    "userid": OF_24,
    "study_id": OF_24 + 100,
    "record_id": OF_24,
    "USUBJID": [f"S-{n}" for n in OF_24],
}

OTHERS = {
    "patient_id": np.arange(N) + 5,
    "admission_type_id": OF_24 % 4,
    "user_type": OF_24 % 4,
    "age": DRAWS.integers(18, 90, N),
    "id_score": DRAWS.normal(size=N),
    "customer_segment": OF_24,
    "persons": OF_24 % 8,
    "is_member": OF_24 % 2 == 0,
    "subject of study": ["maths", "physics", "law", "art", "music", "sport"] * 20,
    "town": [f"Town {n}" for n in OF_24],
    "code": [f"A{n % 10}" for n in OF_24],
    "shopId": OF_24,
    "income": OF_24 * 1000 + 100_000,
}


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_an_identifier_that_repeats_is_told(name):
    assert repeating(pd.DataFrame({name: IDENTIFIERS[name]})) == [name]


@pytest.mark.parametrize("name", OTHERS)
def test_neither_categories_nor_amounts_nor_unique_identifiers_are_told(name):
    assert repeating(pd.DataFrame({name: OTHERS[name]})) == []


def test_a_run_on_rows_of_people_says_what_epsilon_is_of(people):
    frame = pd.read_csv(people)
    frame.assign(patient=np.arange(60) // 3 + 1000).to_csv(people, index=False)
    with pytest.warns(UserWarning, match="20 values in 60 rows, .* users.column=patient to protec"):
        compose(settings(people))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compose(settings(people, "users=column", "users.column=patient"))


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3, st.sampled_from([0.5, None])), max_size=30))
def test_rows_have_one_number_exactly_if_they_are_equal(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d"]).astype({"d": "float64"})
    texts = [repr(row) for row in rows]
    numbers = identical([frame[name] for name in frame])
    if all(frame[name].nunique(dropna=False) < len(frame) for name in "abc"):
        assert numbers.tolist() == [texts.index(text) for text in texts]


def test_a_column_that_numbers_the_rows_makes_no_copy_another_row():
    frame = pd.DataFrame({"a": [0.5, 0.25, 0.5], "n": [3, 1, 2]})
    assert identical([frame["a"], frame["n"]]).tolist() == [0, 1, 0]


def test_copies_are_counted_unless_they_are_likely_by_chance(people):
    frame = pd.read_csv(people)
    pd.concat([frame, frame[:7]]).to_csv(people, index=False)
    with pytest.warns(UserWarning, match=r"^7 rows of .* are copies of others: epsilon is per row"):
        compose(settings(people))
    few = frame[["town", "sex", "rich"]]
    assert expected_pairs([few[name] for name in few]) > 1
    few.to_csv(people, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compose(settings(people))


def test_test_rows_that_are_trained_on_are_counted(people, tmp_path):
    pd.read_csv(people)[:11].to_csv(tmp_path / "test.csv", index=False)
    with pytest.warns(
        UserWarning, match=r"^11 of the 11 rows of dataset.test_file=.* are trained on"
    ):
        compose(settings(people, f"dataset.test_file={tmp_path / 'test.csv'}"))
