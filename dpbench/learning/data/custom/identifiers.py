"""Columns that seem to say whose a row is."""

import re

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from dpbench.learning.data.custom.column_types import FEW

PEOPLE = {
    *("applicant", "author", "borrower", "citizen", "client", "consumer", "customer", "donor"),
    *("driver", "employee", "household", "individual", "learner", "member", "participant"),
    *("passenger", "patient", "person", "player", "pupil", "rater", "resident", "respondent"),
    *("cliente", "eleve", "kunde", "kunden", "mitarbeiter", "mitglied", "paciente", "patienten"),
    *("reviewer", "speaker", "student", "subject", "subscriber", "user", "visitor", "worker"),
}
SHORT = {
    *("account", "animal", "anon", "case", "child", "cust", "device", "email", "emp", "family"),
    *("hh", "mother", "owner", "pat", "phone", "record", "resp", "sample", "stud", "study", "subj"),
    *("twin", "usubj"),
}
"""Words that are of people only beside that of an identifier."""

IDENTIFIERS = {"id", "ids", "identifier", "uid", "uuid", "guid", "pid", "mrn", "ssn", "nbr", "nr"}
OTHERS = {"no", "num", "number", "nummer", "numero", "code", "key", "name", "hash", "index"}
NUMBERS = IDENTIFIERS | OTHERS
"""Words in the names of columns, in lower case."""

FEWEST = 5
"""The fewest values of a column of numbers that has the name of a person."""

FORMS = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}|\S+@\S+\.\w+|[A-Za-z]{1,8}[-_]?\d{2,}",
    re.IGNORECASE,
)
"""What texts are that name people: a UUID, a hash, an address, letters and a number."""

SEEN = 100
"""So many texts are looked at before all are."""


def words_of(name: object) -> list[str]:
    """The words of a column's name in lower case: of `PatientID` and of `patientid` two."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", str(name))
    words = [word.lower() for word in re.split(r"[\W_\d]+", split) if word]
    return [part for word in words for part in _parts(word)]


def _parts(word: str) -> list[str]:
    for ending in NUMBERS:
        if (rest := word.removesuffix(ending)) != word and rest in PEOPLE | SHORT:
            return [rest, ending]
    return [word]


def repeating(frame: pd.DataFrame) -> list[str]:
    """The columns that seem to say whose a row is, and have the same value in several rows."""
    seeming = (frame[name] for name in frame if seems_identifier(frame[name]))
    return [str(column.name) for column in seeming if column.nunique() < column.count()]


def seems_identifier(column: pd.Series) -> bool:
    """Whether a column seems to identify people or other things, by its name or its values."""
    words = {*words_of(column.name)}
    called = bool(words & PEOPLE) and words <= PEOPLE | NUMBERS
    numbered = bool(words & (PEOPLE | SHORT) and words & IDENTIFIERS)
    bare = bool(words) and words <= IDENTIFIERS
    if is_numeric_dtype(column):
        formed = called or numbered or bare
        if not formed or is_bool_dtype(column) or (column.dropna() % 1 != 0).any():
            return False
    else:
        texts = column.dropna().head(SEEN).map(str)
        formed = len(texts) > 0 and all(map(FORMS.fullmatch, texts))
    if not (called or numbered or bare or formed):
        return False
    different = column.nunique()
    if (called or numbered) and formed and different >= FEWEST:
        return True
    return different > max(FEW, len(column) ** 0.5)
