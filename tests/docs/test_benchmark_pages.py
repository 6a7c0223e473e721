"""Every number in benchmarks/*/README.md that is a result is one that its sources give.

page_numbers.py says what a result is and what its sources are, record_numbers.py and
derived_numbers.py what these give.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpbench.cli.main import main
from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.epsilon import rounded_up
from tests.docs.page_numbers import Block, Shown, blocks, results
from tests.docs.record_numbers import Given, given, names

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "benchmarks").glob("*/README.md"))
FOUND = 0.8  # of all changes of a last digit; the others make another number of the same source
ALIASES = {
    "without privacy": "non_private",
    "R = 1": "small_r",
    "R = 200": "large_r",
    "mix-up of both": "mixup",
    "small R": "small_r",
    "large R": "large_r",
    "flat, R = 1": "small_r",
    "flat, R = 200": "large_r",
    "global, R = 200": "global",
}
# (page, first words of the block): numbers that no record gives, and why they stand there
EXCEPTIONS = {
    ("bam", "(± is computed"): ("0.58", "arithmetic: 1/sqrt(3)"),
    ("calibration", '- "3 epochs'): ("2,500 4.6", "the paper's text, and arithmetic with it"),
    ("calibration", "- The paper does not say whether MNIST's"): (
        "24 91.8 3.3",
        "its command is there",
    ),
    ("calibration", "- The following are not printed"): ("11", "its command is there"),
    ("claims", "One case is *not*"): ("8", "a reading that the table rejects"),
    ("misalignment", "pi is the accuracy"): ("0.031 0.063", "arithmetic: 1/32 and 2/32"),
    ("misalignment", "- Appendix B.1 samples"): ("3.50 14,695", "an account: see the test below"),
    ("misalignment", "- Appendix B.7 says"): ("0.005", "our tolerance, in the claim"),
    ("misalignment", "- Dutch: the authors apply"): ("0.313", "arithmetic: log(1 + 1/e)"),
    ("misalignment", "`fairlens` is the exception"): (
        "68.4 88.6 0.62",
        "of the data, and the entropy of the first: see the test below",
    ),
}
# the rows of a page that a command prints: accounts take seconds each, so another test reads them
ACCOUNTS = {
    ("bam", "| CIFAR, 1 |"): "+table=bam_table1 privacy.epsilon=1",
    ("bam", "| CIFAR, 2 |"): "+table=bam_table1 privacy.epsilon=2",
    ("bam", "| CIFAR, 10 |"): "+table=bam_table1 privacy.epsilon=10",
    ("bam", "| ImageNet32, 10 | 23"): "+table=bam_table1 dataset=imagenet32 privacy.epsilon=10",
    ("calibration", "| SNLI |"): "+table=calibration_table2 dataset=snli table.arm=small_r",
}


def known(text: str) -> list[str]:
    """The sources that a text names."""
    mentioned = (name for name in names() if name in text)  # as there are too many patterns to keep
    return [n for n in mentioned if re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", text)]


def read(text: str) -> list[Block]:
    return blocks(text, known)


def label(block: Block) -> set[str]:
    """The words by which the first cell names a row."""
    first = block.text.strip("|").partition("|")[0].strip()
    words = " ".join(re.findall(r"`(\w+)`", first)) or ALIASES.get(first, first)
    return set(re.findall(r"[\w.]+", re.sub("[-,]", "", words.lower())))


def pool(block: Block) -> list[Given]:
    """The numbers that a block may show: in a row, those nearest in words to its first cell."""
    numbers = [n for e in block.sources for n in given(e) if not n.difference or "-less-" in e]
    if not block.is_row or not numbers:
        return numbers
    row = label(block)
    shared = [len(n.words & row) for n in numbers]
    most = max(shared)
    return [n for n, words in zip(numbers, shared, strict=True) if words == most]


def agrees(shown: Shown, number: Given) -> bool:
    """Whether a number, rounded to the digits shown, is what is shown.

    Without a sign its size counts. A whole number below 10 is a count, and must be equal, unless
    it is of points, per cent or times; only of these may it be the hundredfold.
    """
    if shown.spread != number.spread:
        return False
    value = number.value if shown.text[0] in "+-" else abs(number.value)
    if shown.unit >= 1 and abs(shown.value) < 10 and not shown.scaled:
        return value == shown.value
    scales = (1, 100) if shown.scaled else (1,)
    return any(abs(value * s - shown.value) <= 0.5 * shown.unit * (1 + 1e-9) for s in scales)


def excused(page: str, block: Block) -> list[str]:
    """The numbers of a block that no record has to give."""
    for (where, start), (numbers, _) in EXCEPTIONS.items():
        if where == page and block.text.startswith(start):
            return numbers.split()
    accounts = [start for where, start in ACCOUNTS if where == page]
    shown = [result.text for result in results(block)]
    return shown if any(map(block.text.startswith, accounts)) else []


def wrong(page: str, text: str) -> list[str]:
    """The numbers of a page that their sources do not give, each with the start of its block."""
    return [
        f"{shown.text} in: {block.text[:60]} (from {', '.join(block.sources) or 'nothing'})"
        for block in read(text)
        for shown in unsupported(page, block)
    ]


def unsupported(page: str, block: Block) -> list[Shown]:
    """The numbers of a block that its sources do not give, and that are not excused."""
    numbers, excuses = pool(block), excused(page, block)
    return [
        shown
        for shown in results(block)
        if shown.text not in excuses and not any(agrees(shown, number) for number in numbers)
    ]


def named(page: Path) -> str:
    return page.parent.name


@pytest.mark.sampled(6)
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_sources_give_every_number(page):
    assert wrong(named(page), page.read_text()) == []


def other_digits(shown: Shown) -> list[Shown]:
    """A number with each other last digit."""
    digits = set("0123456789") - {shown.text[-1]}
    return [replace(shown, text=shown.text[:-1] + digit) for digit in sorted(digits)]


def checked(page: str, text: str) -> Iterator[tuple[Shown, list[Given]]]:
    """The numbers of a page that are not excused, each with those that it may be."""
    for block in read(text):
        numbers, excuses = pool(block), excused(page, block)
        for shown in results(block):
            if shown.text not in excuses:
                yield shown, numbers


@pytest.mark.sampled(5)
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_nearly_every_changed_digit_is_found(page):
    found = [
        not any(agrees(changed, number) for number in numbers)
        for shown, numbers in checked(named(page), page.read_text())
        for changed in other_digits(shown)
    ]
    assert sum(found) / len(found) >= FOUND


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_with_a_changed_digit_fails(page, tmp_path):
    text = page.read_text()
    unique = (
        (shown.text, changed.text)
        for shown, numbers in checked(named(page), text)
        if "." in shown.text and text.count(shown.text) == 1
        for changed in other_digits(shown)
        if not any(agrees(changed, number) for number in numbers)
    )
    number, changed = next(unique)
    copy = tmp_path / "README.md"
    copy.write_text(text.replace(number, changed))
    assert [said.split()[0] for said in wrong(named(page), copy.read_text())] == [changed]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_number_without_a_source_fails(page):
    text = page.read_text() + "\n## More\n\nIt is 12.3% faster.\n"
    assert wrong(named(page), text) == ["12.3 in: It is 12.3% faster. (from nothing)"]


@pytest.mark.parametrize("where", [*EXCEPTIONS, *ACCOUNTS], ids=" ".join)
def test_an_exception_is_needed(where):
    page, start = where
    text = (ROOT / "benchmarks" / page / "README.md").read_text()
    (block,) = [block for block in read(text) if block.text.startswith(start)]
    given_anyway = {
        shown.text
        for shown in results(block)
        if any(agrees(shown, number) for number in pool(block))
    }
    excuses = excused(page, block)
    assert set(excuses) <= {shown.text for shown in results(block)}
    assert not set(excuses) & given_anyway or where in ACCOUNTS


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:privacy.delta=8e-07 is above")  # ImageNet32 in bam_table1
@pytest.mark.parametrize("where", ACCOUNTS, ids=" ".join)
def test_an_account_is_what_its_command_prints(where, monkeypatch, capsys):
    page, start = where
    text = (ROOT / "benchmarks" / page / "README.md").read_text()
    (block,) = [block for block in read(text) if block.text.startswith(start)]
    monkeypatch.setattr("sys.argv", ["dpbench", "epsilon", *ACCOUNTS[where].split()])
    main()
    printed = json.loads(capsys.readouterr().out)
    keys = ("steps", "noise_multiplier", "rdp", "pld", "gdp")
    values = [Given(printed[key], frozenset()) for key in keys]
    values += [Given(float(rounded_up(printed[key])), frozenset()) for key in ("rdp", "pld")]
    values += [Given(1.25, frozenset())] * (page == "calibration")  # as the paper prints it
    for shown in results(block):
        assert any(agrees(shown, value) for value in values), shown.text


@pytest.mark.parametrize(
    ("people", "steps", "printed"), [(28_000, 88, "3.50"), (2 * 14_695, 92, "3.41")]
)
def test_which_sample_of_adult_has_the_printed_epsilon(people, steps, printed):
    """Four fifths of them are trained on, in batches of 256, for 20 epochs with sigma 1."""
    assert round(people * 0.8 / 256) == steps
    step = Step(Poisson(1 / steps), (Release("gradient sum", GaussianMechanism(1.0)),))
    epsilon = rdp(Ledger().after(step, 20 * steps), 1e-6)
    assert f"{epsilon:.2f}" == printed


@pytest.mark.data
def test_the_shares_of_class_0_are_those_of_the_test_sets(data_folder):
    adult = build(compose(["+table=misalignment_table4", "method=dpsgd"])).dataset
    tests = [adult.load(data_folder, seed).test for seed in range(5)]
    shares = [
        100 * sum((t.targets[t.groups == group] == 0).double().mean() for t in tests) / len(tests)
        for group in (0, 1)
    ]
    shown, _ = EXCEPTIONS["misalignment", "`fairlens` is the exception"]
    constant = binary_entropy(shares[0] / 100)  # the least loss of a constant probability
    assert [*(f"{share:.1f}" for share in shares), f"{constant:.2f}"] == shown.split()


def binary_entropy(p):
    return -p * math.log(p) - (1 - p) * math.log(1 - p)
