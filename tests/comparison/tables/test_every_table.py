"""Every table of a paper, fed its own print, its claims reversed, and nothing but constants."""

import functools
import re
from dataclasses import fields, replace

import msgspec
import pytest

from dpbench.comparison.compare.claims import GAIN
from dpbench.comparison.reproduce.render import printed_numbers
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.edition import Edition
from dpbench.comparison.tables.summary import constants
from dpbench.comparison.tables.table import build_table
from dpbench.comparison.tables.verdict import FAILS
from dpbench.learning.metrics.derived import is_paired
from dpbench.runs.config.search_path import file_of, options
from dpbench.system.errors import counted

COLUMNS = re.compile(r"@table\.columns|^  columns:", re.MULTILINE)
TABLES = [
    name for name in options("table")
    if COLUMNS.search(file_of("table", name).read_text(encoding="utf-8"))
]  # fmt: skip
CONTRADICTED = [("misalignment_table5", "global_f_loss")]
"""Claims that print is against in every comparison."""

ALIKE_IN_PRINT = [
    ("misalignment_table1", "acc_a"),
    ("reproducibility_table1", "accuracy"),
    *(("misalignment_table5", column) for column in ("acc_b", "pi_b", "train_R_ab")),
]
"""Columns whose printed numbers differ by less than what matters: their mean passes for all."""

SEEDS = 16
"""Enough for the sign test, which judges differences that are all equal, whatever the claim."""

PRIVACY = {
    **{f"privacy/{name}": 1.0 for name in ("rdp", "pld", "gdp", "claimed", "delta")},
    **{"privacy/guarantee": "proven", "privacy/why": "Made up.", "privacy/arithmetic": "float"},
}


@functools.cache
def known(name):
    """The edition of a table at the paper's scale, of many seeds, and what the paper printed."""
    wanted = target_of(name, [])
    table = msgspec.structs.replace(wanted.table, seeds=[*range(SEEDS)])
    values = {field.name: getattr(wanted, field.name) for field in fields(Edition)}
    return Edition(**values | {"table": table}), printed_numbers(wanted)


def made_up(edition, value):
    """The table of runs in which every seed has value(condition, method, column), in its unit."""
    base = [column for column in edition.columns if not is_paired(column.metric)]
    return [
        {
            **{"dataset": "any", "model": "any", "method": method, "variant": "corrected"},
            **{"seed": seed, "status": "complete", "condition": condition, **PRIVACY},
            **{c.metric: value(condition, method, c) / c.factor for c in base},
        }
        for condition in edition.labels
        for method in {*edition.table.methods, edition.table.baseline}
        for seed in edition.table.seeds
    ]


def judged(name, value, *claims):
    """The table of made-up values, with all of its claims or with those named."""
    edition, printed = known(name)
    if claims:
        asked = {one.name: edition.table.claims[one.name] for one in claims}
        edition = replace(edition, table=msgspec.structs.replace(edition.table, claims=asked))
    nothing = {"epsilon": {}, "notes": ()}
    return build_table(edition, made_up(edition, value), printed, **nothing)


def as_printed(name, condition, method, column):
    """The printed number; one for all rows where there is none."""
    number = known(name)[1].get((row_name(condition, method), column.printed))
    return float(number.value) if number else 50.0


def pairs(claim):
    return [(row, than) for row in claim.rows for than in claim.than]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_claims_something_of_rows_that_it_has(name):
    edition, _ = known(name)
    assert edition.claims or edition.table.challenge  # entries are compared, not baselines
    for claim in edition.claims:
        rows = {*claim.rows, *(than for than in claim.than if isinstance(than, str))}
        assert rows <= set(edition.table.methods)
        assert claim.labels != (), f"{claim.name} is about no condition"
        assert claim.statement.endswith(".")


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_fed_its_print_holds_where_print_does(name):
    table = judged(name, functools.partial(as_printed, name))
    for one in table.claims:
        for comparison in one.comparisons:
            printed = comparison.printed
            # What is printed as equal may differ by what other printed numbers give.
            if printed is not None and abs(printed.value) > printed.rounding:
                assert (comparison.verdict in GAIN) == comparison.agrees
    # What is printed with a large spread stays undecided, however near the mean is.
    verdicts = {cell.verdict for cell in table.cells if cell.published}
    assert verdicts <= {"reproduced", "undecided", "not judged"}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_claim_reversed_does_not_hold(name):
    """Each pair of its rows with each other's numbers, or as far on the other side of `by`."""
    for said in known(name)[0].claims:
        if any("/" in quantity for quantity in said.quantities):
            continue  # about a metric that is no column, of which nothing is made up
        if (name, said.name) in CONTRADICTED:
            continue  # in print it is at the very size that is claimed
        if said.by and any(is_paired(c.metric) for c in columns_of(name, said)):
            continue  # about a cost, which follows from what is made up
        with_print = [fails_reversed(name, said, *pair) for pair in pairs(said)]
        assert any(with_print), said.name


def columns_of(name, claim):
    """The columns that a claim is about."""
    names = {part for quantity in claim.quantities for part in re.findall(r"\w+", quantity)}
    return [column for column in known(name)[0].columns if column.name in names]


def fails_reversed(name, said, row, than):
    """Whether the claim fails with two rows reversed, as it must unless print is against it."""
    (one,) = judged(name, reversed_in(name, said, row, than), said).claims
    told = [c for c in one.comparisons if (c.row, c.than) == (row, than)]
    # What the paper's own numbers are against holds where they are reversed, unless they are equal.
    for comparison in told:
        against = comparison.agrees is False and abs(comparison.printed.value) > 1e-9
        assert (comparison.verdict in GAIN) == against, said.name
    with_print = any(c.agrees is not False for c in told)
    # A claim of several rows may hold by the others.
    gains = one.ruling.word in GAIN and len(one.comparisons) == 1
    assert not with_print or not gains, said.name
    return with_print


def reversed_in(name, claim, row, than):
    """The printed numbers but of two rows; where nothing is printed the first is the worse."""
    columns = {part for quantity in claim.quantities for part in re.findall(r"\w+", quantity)}

    def value(condition, method, column):
        printed = functools.partial(as_printed, name, condition)
        if method not in (row, than) or (column.name not in columns and claim.by):
            return printed(method, column)
        gap = printed(row, column) - printed(than, column)
        if claim.by and method == row:
            return printed(than, column) - worse(column) * 2 * claim.by - gap
        if claim.by or (gap == 0 and method == than):
            return printed(than, column)
        return printed(row if method == than else than, column) + worse(column) * (gap == 0)

    return value


def worse(column):
    """The sign of what is worse in a column."""
    return -1 if column.better == "higher" else 1


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("constant", ["zeros", "means"])
def test_a_table_of_constants_makes_no_claim_hold(name, constant):
    edition, printed = known(name)

    def value(condition, _, column):
        numbers = [
            printed.get((row_name(condition, m), column.printed)) for m in edition.table.methods
        ]
        given = [float(number.value) for number in numbers if number]
        return sum(given) / len(given) if given and constant == "means" else 0.0

    table = judged(name, value)
    for one in table.claims:
        # A row that may fall behind by so much does not where all are the same.
        assert (one.verdict in GAIN) == (one.claim.by < 0)
        of_rows = all(isinstance(than, str) for than in one.claim.than)
        assert not of_rows or one.verdict != FAILS
    claims = f"{counted(len(table.claims), 'claim')}: "
    assert not table.claims or table.summary[0].startswith(claims)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", TABLES)
def test_no_constant_passes_a_column(name):
    """Under some condition print may tell no row from another; never under all of them, unless it
    has a single number in all, or its numbers are alike."""
    found = constants(*known(name))
    for column in {passed.column for passed in found}:
        of = [passed for passed in found if passed.column == column]
        printed, zeros, means = (sum(map(len, x)) for x in zip(*(p[2:] for p in of), strict=True))
        passes = max(zeros, means) == printed and printed > 1
        assert passes == ((name, column.name) in ALIKE_IN_PRINT), column.name
