"""A search as data, written as NAME.json beside its page; its trials are the lines of NAME.csv."""

from msgspec import Struct


class SearchData(Struct, frozen=True):
    """What was searched, and what was chosen.

    choices: the data set, the model and the method, without those that differ between trials;
    ranges: their texts by setting; chosen: the number of a trial, null for none; ends: a sentence
    on each of its settings that is at an end of what was tried.
    """

    choices: dict[str, str]
    ranges: dict[str, str]
    rule: str
    chosen: int | None
    ends: list[str]
