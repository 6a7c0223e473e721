"""The file of a table as a value: every key that it may have, with its type and its meaning.

The text below a key is its meaning in docs/tables_language.md, which scripts/table_keys writes.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from dpbench.learning.metrics.metric import Better
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT
from dpbench.runs.config.buildable import TARGET
from dpbench.system.schema import parsed
from dpbench.system.validate import Count, Positive, Share, Whole

Value = str | int | float | None
"""A value of a setting that a table varies."""

Spread = Literal["standard error", "standard deviation"]
Reading = Literal["full text", "authors' code", "summary", "abstract", "memory"]
Statistic = Literal["mean", "min", "max", "first", "last", "change"]
AxisScale = Literal["linear", "log", "log2"]


USUAL_BASELINE = "dpsgd"
"""The method that others are compared with."""


class FilePart(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping in a table's file."""


class Rule(FilePart, frozen=True):
    """Options and values for some of a table's runs."""

    when: dict[str, str] = {}
    """the options (and `arm`) to which the rule applies; without it, all runs"""
    choose: dict[str, str] = {}
    """options in place of the defaults; the command line takes precedence"""
    set: dict[str, Any] = {}
    """values merged into the configuration; the command line takes precedence"""
    tuned: str = ""
    """the search whose choice is merged into the configuration, `results/search/NAME.csv`, with
    `{GROUP}` for an option"""


class Scale(FilePart, frozen=True):
    """A size to run a table at."""

    description: str
    """what is smaller than in the paper; shown in the title"""
    overrides: list[str]
    """overrides as on the command line, applied before the user's"""


class ChallengeRules(FilePart, frozen=True):
    """How `dpbench challenge` tunes an entry, as it did each baseline."""

    trials: Count
    """random trials of the method's space"""
    trial_seed: int
    """their seed"""
    finalists: Count
    """the best trials, which are run again"""
    final_seeds: Count
    """with so many other seeds"""
    rule: str
    """the rule of both choices"""
    validation: Share
    """the share of the training examples that is held out"""
    metric: str
    """what the entry is compared by"""
    extend: Whole = 0
    """so many trials more beyond an end at which the best lies, as `dpbench search` has them"""
    draw: Whole = 0
    """the first draw of the random trials, as `dpbench search` has it"""
    starts: bool = False
    """whether a method that contains a baseline starts at what that one's search of the same number
    chose"""


class ColumnEntry(FilePart, frozen=True):
    """A column of a table; what it leaves out is the registry's."""

    metric: str
    """a metric of the records, or `test/worst_group_accuracy`, the lowest accuracy of a group"""
    factor: Positive | UnsetType = UNSET
    """multiplies the metric, 100 for percent; by default the registry's, and required for metrics
    not in the registry"""
    digits: Whole | UnsetType | None = UNSET
    """number of decimals, by default the registry's; null for three significant digits"""
    better: Better | UnsetType = UNSET
    """`higher` or `lower`, by default the registry's"""
    printed: str = ""
    """the published column to compare with, if its name differs"""
    margin: float | str | UnsetType = UNSET
    """the largest difference that does not matter, in the column's unit or as a share of the value
    (`2%`); by default the registry's ([verdicts](verdicts.md#margins))"""
    judged: bool = True
    """false for a column whose printed numbers are already judged in another column"""


class ClaimEntry(FilePart, frozen=True, kw_only=True):
    """A claim of the paper: exactly one of better, larger and smaller is given."""

    statement: str
    """the claim, in a sentence"""
    source: str
    """the one paper that makes it, with the section; or `ours`, or `ours, after PAPER` where the
    paper claims another quantity, or of another method"""
    method: str = ""
    """the source's method that the claim is about, by default the only row"""
    regime: str = ""
    """where the source claims it, before the sentence: data, model, budget, tuning; by default the
    table's"""
    read: Reading | None = None
    """what of the source was read, by default the table's"""
    better: list[str] = []
    """rows claimed to be better in every quantity, in the direction of its column; or"""
    larger: list[str] = []
    """rows claimed to be larger; or"""
    smaller: list[str] = []
    """rows claimed to be smaller; exactly one of the three is given"""
    than: list[str | int | float]
    """the rows to compare with, under the same condition or, as `batch_size 256, dpsgd`, under
    another one; or a number"""
    quantities: list[str] = field(name="in")
    """the quantities: columns, series of a figure, differences of two, absolute values; of a table
    also metrics without a column, and the mean of columns; of a figure also metrics,
    `bins/confidence` and `bins/accuracy` of its reliability diagram, and the shares
    `histogram/confidence` and `histogram/true_class`"""
    under: dict[str, list[Value]] | None = None
    """the conditions to which the claim applies, as lists of values by key; without it, all"""
    by: float = 0.0
    """the minimum difference, in the quantity's unit; if negative, how far a row may fall behind"""
    unequal_budgets: bool = False
    """true for a claim on what a larger epsilon is worth; else no row wins by one"""
    over: Statistic = "mean"
    """how a series is reduced to one value per run: `mean` (the default), `min`, `max`, `first`,
    `last`, or `change` from the first to the last"""


class Panel(FilePart, frozen=True):
    """A row of plots: its x-axis, its lines, and the arms in it.

    A metric of an arm without the setting on the x-axis is a horizontal line.
    """

    title: str
    """the heading of a panel"""
    x: str
    """a series, as `step` or `epoch`; or a setting, and each run is one point: the metric, or the
    mean of the series"""
    lines: dict[str, str]
    """by label: a series or a metric; `<k>` and `<group>` stand for each group's index and name"""
    arms: list[str] | None = None
    """the arms to draw; without it, all"""
    x_scale: AxisScale = "linear"
    """`linear` (the default), `log`, or `log2` with ticks at powers of two"""
    y_scale: AxisScale = "linear"
    """the same for the other axis"""

    @property
    def over_time(self) -> bool:
        """Whether the x-axis is training time."""
        return self.x in ("step", "epoch")

    @property
    def x_label(self) -> str:
        """The label of the x-axis: x without the prefix of a series or setting."""
        return self.x.rpartition("/")[2]


class Figure(FilePart, frozen=True, tag_field="kind"):
    """What all kinds of figures have."""

    labels: dict[str, str] = {}
    """labels of arms in the legend"""


class Lines(Figure, frozen=True, kw_only=True, tag="lines"):
    """Series over training, or results over a setting; the default kind."""

    columns: Literal["method", "condition"]
    """a column of plots for each `method`, or for each `condition` with all arms in one plot"""
    band: Literal["standard deviation", "range"]
    """what is shaded around the means, the `standard deviation` or the `range` over runs"""
    panels: list[Panel]
    """a row of plots each"""


class Heat(Figure, frozen=True, kw_only=True, tag="heat"):
    """Final metrics over two settings that vary."""

    x: str
    """a setting that varies"""
    y: str
    """the other setting"""
    panels: dict[str, str]
    """metrics by title"""


class Scatter(Figure, frozen=True, kw_only=True, tag="scatter"):
    """Methods in the plane of two metrics, with the trials of their searches."""

    x: str
    """a metric"""
    y: str
    """another metric"""


class Reliability(Figure, frozen=True, tag="reliability"):
    """Reliability diagrams, a column for each arm."""


class Histogram(Figure, frozen=True, kw_only=True, tag="histogram"):
    """Histograms of predictions, a panel for each condition."""

    variable: Literal["confidence", "true_class"]
    """`confidence` or `true_class`"""


class Drawing(Figure, frozen=True, kw_only=True, tag="function"):
    """A figure that a function of the library draws."""

    target: str = field(name=TARGET)
    """instead of a kind: a function of the library"""


class TableFile(FilePart, frozen=True, kw_only=True):
    """A table or figure: what it is, its rows, their runs, and what is judged."""

    title: str
    """the heading, with the paper's number in parentheses"""
    paper: str
    """the paper, named under the heading"""
    published: str | None = None
    """the published numbers, a CSV file under `benchmarks/`; null if there are none"""
    published_runs: Count | None = None
    """over how many runs the paper averaged"""
    epsilon: str | UnsetType | None = UNSET
    """the published epsilons: a CSV file, `budget` (those requested by the conditions), or null"""
    claimed_by: str = DEFAULT_PAPER_ACCOUNTANT
    """the accountant that the paper used: `rdp` (the default), `moments` (RDP with the conversion
    of 2017), `gdp` or `note`"""
    notes: list[str] = []
    """notes printed under the table"""
    spread: Spread | None = None
    """what ± means in the paper: `standard error` or `standard deviation`"""
    loss_digits: int | None = None
    """the number of digits of a loss, for use in shared columns"""

    methods: list[str]
    """the rows, in order: options of `method`, or arms"""
    arm: str | UnsetType | None = UNSET
    """if this key is present (as null), `methods` names arms: rows that differ in more than the
    method, each configured by rules with `when: {arm: ARM}`"""
    planned: dict[str, str] = {}
    """rows of `methods` that have no runs yet, and what they wait for; no command runs them"""
    seeds: list[int]
    """each row is run once per seed"""
    variants: dict[str, list[str | dict[str, Value]]] = {}
    """by method: the variants to run, one row each; claims refer to the first"""
    conditions: list[dict[str, list[Value]]] = []
    """blocks; each stands for all combinations of its lists, and all blocks vary the same keys"""
    baseline: str = ""
    """the non-private row, relative to which privacy costs are measured"""
    checklist: str = USUAL_BASELINE
    """the row that the checklist compares others with, if not `dpsgd`"""
    groups: list[str | int] = []
    """two groups a and b of the data set, or an empty list"""
    group_numbers: list[int] = []
    """their indices, which replace `<k>` in a series"""

    tuned: str = ""
    """the search whose choice each row takes (`results/search/NAME.csv`), with `{GROUP}` for an
    option and `{arm}` for the row; applied after the rules. No verdict counts against a row
    whose search chose the outer tenth of the values it tried"""
    tuned_at: dict[str, Value] = {}
    """the settings that these searches were made at, if not at those of each condition. No
    verdict counts against a row under a condition with others"""
    searches: Count = 1
    """how many searches there are of each row, `{search}` in `tuned`: a run takes the choice of the
    one whose number, from 1, is the seed modulo so many, plus 1. Verdicts compare the means of the
    searches, so that their intervals cover search and seed"""
    chosen_by: str = "accuracy"
    """the metric on validation splits by which these searches chose"""
    again: dict[str, str] = {}
    """by row: that of the same method with the settings of another search. A verdict on the row
    is decided only if it is shown beside this one, too"""
    settings: list[Rule] = []
    """rules; all that match apply in order, later ones override"""
    scales: dict[str, Scale] = {}
    """smaller scales by name, selected by `scale=NAME`; the default, `scale=paper`, is the
    paper's"""
    compute: dict[str, Any] | None = None
    """instead of runs: a function of a study, with arguments"""
    challenge: ChallengeRules | None = None
    """how `dpbench challenge` tunes an entry, as it did each baseline"""

    columns: dict[str, ColumnEntry] = {}
    """by name, in order; usually a file in `table/columns/`"""

    regime: str = ""
    """where the sources of claims make them, unless a claim says it"""
    read: Reading | None = None
    """what of the sources of claims was read, unless a claim says it"""
    claims: dict[str, ClaimEntry] | None = {}
    """by name: the paper's claims about the rows; null at a scale that cannot judge them"""

    figure: Lines | Heat | Scatter | Reliability | Histogram | Drawing | None = None
    """a figure instead of columns"""

    @property
    def has_arms(self) -> bool:
        """Whether rows differ by more than their method, such as by data set and model."""
        return self.arm is not UNSET

    @property
    def ready(self) -> list[str]:
        """The rows that can be run."""
        return [method for method in self.methods if method not in self.planned]

    @property
    def numbers_of_groups(self) -> dict[str, int]:
        """The groups' indices by name; empty where the file has none."""
        return dict(zip(map(str, self.groups), self.group_numbers, strict=False))

    def search_number(self, seed: int) -> int:
        """The number of the search whose choice a run with this seed takes."""
        return search_number(self.searches, seed)

    def unit(self, seed: int) -> int:
        """What comparisons take as random of a run with this seed: its search where a row has
        several, else the seed."""
        return self.search_number(seed) if self.searches > 1 else seed


def search_number(searches: int, seed: int) -> int:
    """The number of the search, of so many, whose choice a run with this seed takes."""
    return seed % searches + 1


def table_file(plain: Mapping[str, Any]) -> TableFile:
    """The table in a plain mapping; UserError for unknown, missing and mistyped keys."""
    figure = plain.get("figure") if isinstance(plain, dict) else None
    if isinstance(figure, dict):
        kind = "function" if TARGET in figure else "lines"
        plain = {**plain, "figure": {"kind": kind, **figure}}
    return parsed("table", plain, TableFile)
