"""Predicts with the released model in this folder; needs torch, and tokenizers for texts.

    python predict.py new.csv        # one prediction a line, for a CSV file with a line of names

or in Python, `predict(rows)`, for a list of mappings from the names of columns to values.
"""

import csv
import functools
import json
import math
import sys
from pathlib import Path

import torch

FOLDER = Path(__file__).parent

NO_NUMBER = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
}
"""What stands for no value among numbers, as in the table that was trained on (pandas')."""


def predict(rows, folder=FOLDER):
    """The class of each row, or the number of a regression; ValueError for a value that the model
    cannot take."""
    about = json.loads((folder / "preparation.json").read_text(encoding="utf-8"))
    model = torch.export.load(folder / "model.pt2").module()
    encode = _tokens if "tokenizer" in about else _features
    with torch.no_grad():
        outputs = torch.cat([model(encode(row, about)) for row in rows])
    if about["classes"]:
        return [about["classes"][place] for place in outputs.argmax(1).tolist()]
    mean, deviation = about["target"]
    return [output * deviation + mean for (output,) in outputs.tolist()]


def _features(row, about):
    """The inputs [1, d] of a row: its numbers, its categories one by one, and what is missing."""
    values = {name: _value(row, name, about) for name in (*about["numbers"], *about["categories"])}
    features = [_number(name, values[name], about) for name in about["numbers"]]
    for name, categories in about["categories"].items():
        same = _same_text if _of_texts(name, about) else _same
        matches = [same(values[name], category) for category in categories]
        if not any(matches) and values[name] is not None and name not in about["listed"]:
            raise ValueError(f"{values[name]!r} is not a category of {name}")
        features += matches
    if about["indicators"]:
        features += [values[name] is None for name in about["incomplete"]]
    return torch.tensor([features], dtype=torch.float32)


def _value(row, name, about):
    """The value of a row in a column, None for one without."""
    value = _given(row, name)
    marks = ("", *about["missing_values"])
    absent = value is None or value != value  # NaN
    absent = absent or (not _of_texts(name, about) and str(value).strip() in NO_NUMBER)
    if not absent and not any(_same(value, mark) for mark in marks):
        return value
    if name not in about["incomplete"] and name not in about["listed"]:
        raise ValueError(f"{name} has no value")
    return None


def _given(row, name):
    if name not in row:
        raise ValueError(f"there is no column {name}: names and values are separated by commas")
    return row[name]


def _of_texts(name, about):
    """Whether a column is of texts, as one in which a category is: "3" is then not the number 3."""
    return any(isinstance(category, str) for category in about["categories"].get(name, ()))


def _number(name, value, about):
    mean, deviation = about["numbers"][name]
    low, high = about["ranges"].get(name, (-math.inf, math.inf))
    usual = (low + high) / 2 if name in about["ranges"] else mean
    try:
        number = usual if value is None else max(low, min(float(value), high))
    except ValueError:
        raise ValueError(f"{value!r} is not a number, which {name} has: write 1234.5") from None
    shift = number - mean
    if name not in about["ranges"] and about["farthest"] is not None:
        reach = about["farthest"] * deviation
        shift = max(-reach, min(shift, reach))
    return shift / (deviation or math.inf)


def _same(value, category):
    """Whether two values are equal, as 1 and 1.0 and "1" are."""
    try:
        return float(value) == float(category)
    except (TypeError, ValueError):
        return str(value) == str(category)


def _same_text(value, category):
    return str(value) == category


@functools.cache
def _tokenizer(text):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    return tokenizer


def _tokens(row, about):
    """The inputs [1, 2, T] of a text, or of two: tokens, and which of the two each is of."""
    tokenizer, length = _tokenizer(about["tokenizer"]), about["length"]
    tokenizer.enable_truncation(length, strategy="longest_first")
    coded = tokenizer.encode(*(_given(row, name) for name in about["text"]))
    inputs = torch.zeros(1, 2, length, dtype=torch.int64)
    inputs[:, 0] = about["padding"]
    inputs[0, 0, : len(coded.ids)] = torch.tensor(coded.ids)
    if len(about["text"]) == 2:
        numbers = torch.tensor([number or 0 for number in coded.sequence_ids])
        inputs[0, 1, : len(numbers)] = numbers.cummax(0).values
    return inputs


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8-sig", newline="") as file:
        try:
            print(*predict(list(csv.DictReader(file, skipinitialspace=True))), sep="\n")
        except ValueError as error:
            sys.exit(f"{sys.argv[1]}: {error}.")
