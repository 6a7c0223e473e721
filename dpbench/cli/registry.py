"""The commands: help, dispatch and completion follow from one entry each."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from textwrap import indent, wrap
from typing import Any, Literal

from msgspec import Struct

from dpbench.runs.config import commands
from dpbench.system.arguments import described, purpose

WIDTH, COLUMN = 100, 35
"""The characters of a line of help, and where its second column begins."""

KEYS = "[KEY=VALUE ...]"


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    settings: the types of its own, the first of which says what it does; usage: its arguments;
    takes: overrides of a configuration, or names of options and records, which are also found in
    --config-dir; for completion, names: the group whose options may be named, or "groups" for those
    of groups, and flags; module: of dpbench, with the function that takes the arguments and prints,
    or returns a page (text) or a path; called: that function, where its name is not the command's.
    """

    name: str
    settings: tuple[type[Struct], ...]
    usage: str = KEYS
    takes: Literal["overrides", "names", ""] = ""
    names: str = ""
    flags: tuple[str, ...] = ()
    module: str = "cli.commands"
    called: str = ""

    @property
    def keys(self) -> set[str]:
        """The keys of its own settings."""
        return {name for kind in self.settings for name in kind.__struct_fields__}

    def function(self) -> Callable[[list[str]], Any]:
        """Its function, for which its module is imported."""
        return getattr(import_module(f"dpbench.{self.module}"), self.called or self.name)

    def text(self, before: str = "  ") -> str:
        """Its part of the help; before: what its name follows."""
        return _entry(f"{before}{self.name} {self.usage}", purpose(self.settings[0]))

    def page(self) -> str:
        """All of its help."""
        parts = [self.text("dpbench ")]
        for kind in self.settings:
            lines = [_entry(f"  {head}", text) for head, text in described(kind)]
            title = [purpose(kind)] if len(parts) > 1 else []
            parts += ["\n".join([*title, *lines])] if lines else []
        return "\n\n".join(parts)

    def entry(self, key: str) -> str:
        """The part of its help about one of its own settings; "" for others."""
        rows = (row for kind in self.settings for row in described(kind))
        lines = (_entry(f"  {head}", text) for head, text in rows if head.split("=")[0] == key)
        return "\n".join(lines)


def _entry(head: str, text: str) -> str:
    lines = wrap(text, WIDTH - COLUMN, break_on_hyphens=False, break_long_words=False)
    if len(head) < COLUMN - 1:
        return "\n".join([head.ljust(COLUMN) + lines[0], *map(_second_column, lines[1:])])
    heads = wrap(head, WIDTH, subsequent_indent=" " * 8, drop_whitespace=True)
    return "\n".join([*heads, *map(_second_column, lines)])


def _second_column(line: str) -> str:
    return indent(line, " " * COLUMN)


_ALL = (
    Command(
        "run", (commands.RunCommand,), f"[-m] {KEYS}", "overrides", flags=("-m", "--cfg", "--info")
    ),
    Command("reproduce", (commands.ReproduceCommand,), f"TABLE {KEYS}", "overrides", "table"),
    Command("search", (commands.SearchCommand,), "[KEY=RANGE ...]", "overrides"),
    Command("challenge", (commands.ChallengeCommand,), f"method=NAME {KEYS}", "overrides"),
    Command("epsilon", (commands.EpsilonCommand,), takes="overrides"),
    Command("audit", (commands.RunAuditCommand, commands.CodeAuditCommand), takes="overrides"),
    Command("data", (commands.DataCommand,), f"[NAME ...] {KEYS}", "names", "dataset"),
    Command("bench", (commands.BenchCommand,), module="benchmarks.step_cost.command"),
    Command(
        "table",
        (commands.TableCommand,),
        f"RESULTS {KEYS}",
        names="groups",
        module="comparison.tables.sweep.command",
    ),
    Command("report", (commands.ReportCommand,), module="comparison.dashboard.command"),
    Command("findings", (commands.FindingsCommand,), module="comparison.dashboard.findings"),
    Command(
        "track",
        (commands.TrackCommand,),
        f"tracker=NAME [results_dir=] {KEYS}",
        "overrides",
    ),
    Command("publish", (commands.PublishCommand,), module="runs.records.publish"),
    Command(
        "release", (commands.ReleaseCommand,), takes="overrides", module="runs.execution.release"
    ),
    Command(
        "recipe", (commands.RecipeCommand,), takes="overrides", module="comparison.search.recipe"
    ),
    Command(
        "checklist",
        (commands.ChecklistCommand,),
        f"TABLE|RESULTS {KEYS}",
        takes="names",
        names="table",
        module="comparison.reproduce.checklist",
    ),
    Command(
        "merge",
        (commands.MergeCommand,),
        f"FOLDER FOLDER ... {KEYS}",
        module="comparison.verify.merge",
    ),
    Command("verify", (commands.VerifyCommand,), f"[TABLE|RECORD ...] {KEYS}", "names", "table"),
    Command(
        "list",
        (commands.ListCommand,),
        "[GROUP ...] [OPTION ...]",
        "names",
        "groups",
        called="listing",
    ),
)

COMMANDS = {command.name: command for command in _ALL}
"""The commands by name, in the order of the help."""

MEANT = {"sweep": "run -m", "multirun": "run -m", "train": "run"}
"""By a word that is no command, the command that does it."""
