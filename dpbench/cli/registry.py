"""The commands: help, dispatch and completion follow from one entry each."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from textwrap import indent, wrap
from typing import Any, Literal

WIDTH, COLUMN = 100, 35
"""The characters of a line of help, and where its second column begins."""


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    usage: its arguments; help: what it does; target: the function `module:name` that takes the
    arguments and prints, or returns a page (text) or a path; takes: overrides of a configuration,
    or names of options and records, which are also found in --config-dir; settings: its own, and
    names: the group whose options may be named, or "groups" for those of groups, for completion.
    """

    name: str
    usage: str
    help: str
    target: str
    takes: Literal["overrides", "names", ""] = ""
    settings: tuple[str, ...] = ()
    names: str = ""

    @property
    def keys(self) -> set[str]:
        """The keys of its own settings."""
        return {name.partition("=")[0] for name in self.settings if "=" in name}

    def function(self) -> Callable[[list[str]], Any]:
        """Its function, for which its module is imported."""
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)

    def text(self, before: str = "  ") -> str:
        """Its part of the help; before: what its name follows."""
        head = f"{before}{self.name} {self.usage}"
        lines = wrap(self.help, WIDTH - COLUMN, break_on_hyphens=False, break_long_words=False)
        if len(head) < COLUMN - 1:
            return "\n".join([head.ljust(COLUMN) + lines[0], *map(_second_column, lines[1:])])
        heads = wrap(head, WIDTH, subsequent_indent=" " * 8, drop_whitespace=True)
        return "\n".join([*heads, *map(_second_column, lines)])


def _second_column(line: str) -> str:
    return indent(line, " " * COLUMN)


_ALL = (
    Command(
        "run",
        "[KEY=VALUE ...]",
        "train once and print the path of the record. With -m a sweep: all combinations of "
        "a=1,2 b=3,4, in jobs=N processes or on a cluster (launcher=slurm, ray). "
        "--cfg job prints the configuration (of a part with --package NAME), and --info the "
        "options chosen, without running anything; record=DIGEST or record=FILE.json runs what a "
        "record is of",
        "dpbench.cli.commands:run",
        "overrides",
        ("-m", "--cfg", "--package", "--info", "record="),
    ),
    Command(
        "reproduce",
        "TABLE [KEY=VALUE ...]",
        "execute the missing runs of a paper's table or figure, and print it; scale=NAME "
        "for a smaller one, if the table declares it; power=0.8 only says how many seeds "
        "would decide its claims; layout=paper [columns=A,B] also writes it as a paper "
        "prints it",
        "dpbench.cli.commands:reproduce",
        "overrides",
        ("scale=", "power=", "layout=paper", "columns="),
        "table",
    ),
    Command(
        "search",
        "[KEY=RANGE ...]",
        "N=20 trials on a validation split, sorted by rule=best_validation, "
        "best_worst_group or lowest_validation_loss; a range is a=1,2 or "
        "'optimizer.lr=tag(log,interval(1e-3,1))', by=random|tpe; space=method takes the "
        "ranges in its file, and starts at the special case that it contains, "
        "as start=SEARCH chose it; extend=16: so many trials more, by default N/4, beyond an end "
        "of a range at which the best one lies; finalists=5: the best again, with "
        "final_seeds=5 other seeds; private=true epsilon=3: a random number of trials, "
        "with an epsilon of 3 for the whole search",
        "dpbench.cli.commands:search",
        "overrides",
        (
            *("N=", "by=", "rule=", "space=", "start=", "extend=", "finalists=", "final_seeds="),
            *("draw=", "private=", "epsilon=", "law=", "trials=", "shape=", "name="),
        ),
    ),
    Command(
        "challenge",
        "method=NAME [version=] [name=] [plan=true] [recount=FILE] [KEY=VALUE ...]",
        "a method against committed baselines by one frozen protocol: its search, then the "
        "test; says its cost first, and only that with plan=true; recount=FILE: from the "
        "records that somebody submitted",
        "dpbench.cli.commands:challenge",
        "overrides",
        ("version=", "name=", "plan=true", "recount="),
    ),
    Command(
        "epsilon",
        "[KEY=VALUE ...]",
        "print the epsilon of a run without training it (JSON in a pipe), or with KEY=A,B "
        "a table; of your own data, only the public sizes are used",
        "dpbench.cli.commands:epsilon",
        "overrides",
    ),
    Command(
        "audit",
        "[KEY=VALUE ...]",
        "attack a run's epsilon with canaries and report a lower bound; canaries=N, "
        "claim=EPSILON, game=run|step|network|memory|cut|normalization|temperature|search, "
        "contender=NAME for another library; "
        "step=MODULE:FACTORY or training=MODULE:FACTORY for private training code of your "
        "own (docs/audit_your_code.md)",
        "dpbench.cli.commands:audit",
        "overrides",
        (
            *("canaries=", "claim=", "confidence=", "game=run", "game=step", "contender="),
            *("step=", "training=", "examples=", "noise_multiplier=", "bound=", "sample_rate="),
            *("steps=", "delta=", "out="),
        ),
    ),
    Command(
        "data",
        "[NAME ...] [data_dir=]",
        "download and check data sets",
        "dpbench.cli.commands:data",
        "names",
        ("data_dir=",),
        "dataset",
    ),
    Command(
        "bench",
        "[KEY=VALUE ...]",
        "measure time and memory of a step, ours and other libraries', or with suite=table "
        "of whole commands; keys are suite=step|parts|depth|table, case, contender, repeats, "
        "device, out",
        "dpbench.benchmarks.step_cost.command:bench",
        settings=(
            *("suite=step", "suite=parts", "suite=depth", "suite=table"),
            *("case=", "contender=", "repeats=", "device=", "out="),
        ),
    ),
    Command(
        "table",
        "RESULTS [sweep=] [rows=method] [columns=] [metrics=] [baseline=METHOD] "
        "[best=validation] [seconds=] [out=table] [KEY=VALUE ...]",
        "write the records with these settings (KEY=A,B: either), or of one sweep, as a "
        "table (Markdown, CSV, LaTeX): means over seeds, epsilons, and with baseline= "
        "differences paired by seed; best=validation chooses among the settings of each "
        "row, and seconds=60 leaves out those that take longer",
        "dpbench.comparison.tables.sweep.command:table",
        settings=(
            *("sweep=", "rows=", "columns=", "metrics=", "baseline=", "best=validation"),
            *("seconds=", "out="),
        ),
        names="groups",
    ),
    Command(
        "report",
        "[results_dir=] [out=]",
        "write one HTML page that compares all records; works offline",
        "dpbench.comparison.dashboard.command:report",
        settings=("results_dir=", "out="),
    ),
    Command(
        "findings",
        "[results_dir=] [out=]",
        "write one page on what all tables and runs say: what to use at epsilon 1, 3 and 8, and "
        "a line for each method and each claim of a paper",
        "dpbench.comparison.dashboard.findings:findings",
        settings=("results_dir=", "out="),
    ),
    Command(
        "track",
        "tracker=NAME [results_dir=] [KEY=VALUE ...]",
        "log finished records with these settings to wandb or another of `list tracker`; those "
        "that W&B already has are logged only with again=true",
        "dpbench.comparison.dashboard.track:track",
        "overrides",
    ),
    Command(
        "publish",
        "[record=DIGEST] [results_dir=] [out=]",
        "write the records without their seeds and without anything computed from training "
        "data that epsilon does not cover; test metrics are kept",
        "dpbench.runs.records.publish:publish",
        settings=("record=", "results_dir=", "out="),
    ),
    Command(
        "checklist",
        "TABLE|RESULTS [method=] [baseline=dpsgd] [metric=test/accuracy] [out=checklist]",
        "answer what a reviewer asks of a comparison (data sets, seeds, significance, "
        "search, ablation, ...) from the records",
        "dpbench.comparison.reproduce.checklist:checklist",
        settings=("method=", "baseline=", "metric=", "results_dir=", "out="),
        names="table",
    ),
    Command(
        "verify",
        "[TABLE|RECORD ...] [results_dir=] [rerun=N] [save=true]",
        "check that records agree with their settings and ledgers, and tables with their "
        "records; rerun=N retrains the N quickest runs, save=true writes a page for the report",
        "dpbench.cli.commands:verify",
        "names",
        ("results_dir=", "rerun=", "save="),
        "table",
    ),
    Command(
        "list",
        "[GROUP ...] [OPTION ...]",
        "print the configuration groups and their options, or for each GROUP that is "
        "named, what each of its options is, or those that are named too",
        "dpbench.cli.commands:listing",
        "names",
        names="groups",
    ),
)

COMMANDS = {command.name: command for command in _ALL}
"""The commands by name, in the order of the help."""

MEANT = {"sweep": "run -m", "multirun": "run -m", "train": "run"}
"""By a word that is no command, the command that does it."""
