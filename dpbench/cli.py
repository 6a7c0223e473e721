"""The command line: `dpbench COMMAND [KEY=VALUE ...]`."""

import json
import re
import sys
from textwrap import dedent

from dpbench import config as configuration
from dpbench.bugs import check_words, reported
from dpbench.divergence import remarks
from dpbench.errors import UserError, nearest, say_warnings_in_one_line, tell
from dpbench.overrides import expand
from dpbench.runs import once, settle

USAGE = """dpbench COMMAND [KEY=VALUE ...]

  run [KEY=VALUE ...]              one run; prints where its record is (-m: all of a=1,2 b=3,4, in
                                   jobs=N processes, or on a cluster: launcher=slurm)
  reproduce TABLE [KEY=VALUE ...]  what is missing of a paper's table or figure, and then the table;
                                   scale=NAME is a smaller one, if the table declares it
  search [KEY=RANGE ...]           N=20 trials on a validation split, and the best of them by rule;
                                   a range is a=1,2 or lr=tag(log,interval(1e-3,1)), by=random|tpe
  epsilon [KEY=VALUE ...]          the epsilon of a run, without training it or reading any data
  data [NAME ...]                  download data sets and check them
  bench [KEY=VALUE ...]            time and memory of a step, beside other libraries' steps, by
                                   suite=step|depth, case, contender, repeats, device, out
  report [results_dir=] [out=]     one HTML page that compares all records; opens without a network
  publish [results_dir=] [out=]    the records without what no epsilon covers, and without seeds
  list [GROUP]                     what there is to choose from

A run takes +table=NAME to use that table's settings for the chosen data set and method.

Exit code: 0 if all is done, 1 if runs failed or something went wrong that nobody foresaw, 2 if the
request was refused before any work, 130 after Ctrl-C, 141 if nobody read the output."""


def run(arguments: list[str]) -> None:
    """One run, or with -m every combination of a sweep; exit code 1 if some of those failed."""
    from dpbench import sweeps

    flags = {"-m", "--multirun"}
    overrides = [a for a in arguments if a not in flags]
    if not flags & set(arguments):
        path = once(overrides)
        print(path)
        for remark in remarks(path):
            tell(remark)
        return
    sweep = sweeps.planned(sweeps.name_of(overrides), expand(overrides))
    failures = sweeps.carry_out(sweep, tell=print)
    for said in filter(None, (sweeps.summary(sweep), failures)):
        tell(said)
    if failures:
        sys.exit(1)


def epsilon(arguments: list[str]) -> None:
    """The ledger without training: last line one JSON object."""
    from dpbench.privacy import statement

    _, prepared, planned = settle(arguments)
    said = statement(
        planned.ledger,
        planned.method,
        prepared.privacy.delta,
        planned.noise_multiplier,
        prepared.noise,
    )
    print(json.dumps(said))


def reproduce(arguments: list[str]) -> None:
    """A paper's table or figure: run what is missing, then write and print it."""
    from dpbench.reproduce import reproduce as rerun

    if not arguments:
        raise UserError(f"reproduce needs a table: {', '.join(configuration.options('table'))}.")
    print(rerun(arguments[0], arguments[1:]))


def search(arguments: list[str]) -> None:
    """Trials on a validation split: run what is missing, then write and print them, best first."""
    from dpbench.search.command import search as run_trials

    print(run_trials(arguments), end="")


def data(arguments: list[str]) -> None:
    """Download and check data sets: all that were named."""
    known = configuration.options("dataset")
    for name in arguments:
        if name not in known:
            raise UserError(f"data set {name} is unknown: {nearest(name, known)}")
    for name in arguments or known:
        config = configuration.compose([f"dataset={name}"])
        loaded = configuration.build(config).dataset.load(configuration.data_folder(config), 0)
        print(f"{name}: {len(loaded.train)} training and {len(loaded.test)} test examples")


def listing(arguments: list[str]) -> None:
    """Groups and their options."""
    for group in arguments or configuration.groups():
        if group not in configuration.groups():
            raise UserError(f"{group} is unknown: {nearest(group, configuration.groups())}")
        print(f"{group}: {', '.join(configuration.options(group))}")


def bench(arguments: list[str]) -> None:
    """The step-cost benchmark; `python -m dpbench.bench` is the same without Hydra."""
    from dpbench.bench.command import bench as measure

    measure(arguments)


def report(arguments: list[str]) -> None:
    """The page that compares the records of a results folder; prints where it is."""
    from dpbench.report.command import report as write

    print(write(arguments))


def publish(arguments: list[str]) -> None:
    """Records to give away; prints where they are."""
    from dpbench.publish import publish as write

    print(write(arguments))


HELP = {"-h", "--help", "help"}

COMMANDS = {
    "run": run,
    "reproduce": reproduce,
    "search": search,
    "epsilon": epsilon,
    "data": data,
    "bench": bench,
    "report": report,
    "publish": publish,
    "list": listing,
}


def main() -> None:
    """Run a command; exit code 2, and one sentence, for what cannot be done."""
    with reported():
        _main()


def _main() -> None:
    command, *arguments = sys.argv[1:] or ["--help"]
    if command in HELP:
        print(USAGE)
        return
    say_warnings_in_one_line()
    try:
        check_words(sys.argv[1:])
        if command not in COMMANDS:
            raise UserError(f"{command} is not a command: {nearest(command, COMMANDS)}")
        if HELP & {*arguments}:
            print(usage_of(command))
        else:
            COMMANDS[command](arguments)
    except UserError as error:
        tell(error)
        sys.exit(2)
    except KeyboardInterrupt:
        tell("interrupted; the same command goes on where it was.")
        sys.exit(130)


def usage_of(command: str) -> str:
    """What the usage says of one command."""
    said = re.search(rf"^  {command} .*\n(?:   +.*\n)*", USAGE, re.MULTILINE)
    assert said
    return f"dpbench {dedent(said[0]).strip()}\n\n`dpbench list` names what there is to set."
