"""The command line: `dpbench COMMAND [KEY=VALUE ...]`.

Modules that take long to import are imported only after Ctrl-C is handled.
"""

import re
import sys
from collections.abc import Callable
from textwrap import dedent

from dpbench.cli.crash_report import check_encoding, checked_output, report
from dpbench.system import interrupts
from dpbench.system.errors import (
    UserError,
    file_errors_told,
    nearest,
    print_message,
    show_warnings_as_messages,
)
from dpbench.system.version import __version__

USAGE = """dpbench COMMAND [KEY=VALUE ...]

  run [KEY=VALUE ...]              train once and print the path of the record. With -m a sweep: all
                                   combinations of a=1,2 b=3,4, in jobs=N processes or on a cluster
                                   (launcher=slurm). --cfg job prints the configuration (of a part
                                   with --package NAME), and --info the options chosen, without
                                   running anything; record=DIGEST or record=FILE.json runs what a
                                   record is of
  reproduce TABLE [KEY=VALUE ...]  execute the missing runs of a paper's table or figure, and print
                                   it; scale=NAME for a smaller one, if the table declares it;
                                   power=0.8 only says how many seeds would decide its claims;
                                   layout=paper [columns=A,B] also writes it as a paper prints it
  search [KEY=RANGE ...]           N=20 trials on a validation split, sorted by
                                   rule=best_validation, best_worst_group or
                                   lowest_validation_loss; a range is a=1,2 or
                                   'optimizer.lr=tag(log,interval(1e-3,1))', by=random|tpe;
                                   space=method takes the ranges that conf/search has for it;
                                   finalists=5: the best again, with final_seeds=5 other seeds;
                                   private=true epsilon=3: a random number of trials, with an
                                   epsilon of 3 for the whole search
  challenge method=NAME [version=] [name=] [plan=true] [recount=FILE] [KEY=VALUE ...]
                                   a method against committed baselines by one frozen protocol:
                                   its search, then the test; says its cost first, and only that
                                   with plan=true; recount=FILE: from the records that somebody
                                   submitted
  epsilon [KEY=VALUE ...]          print the epsilon of a run without training it (JSON in a pipe),
                                   or with KEY=A,B a table; of your own data, only the public sizes
                                   are used
  audit [KEY=VALUE ...]            attack a run's epsilon with canaries and report a lower bound;
                                   canaries=N, claim=EPSILON, game=run|step, contender=NAME for
                                   another library; step=MODULE:FACTORY or training=MODULE:FACTORY
                                   for private training code of your own (docs/audit_your_code.md)
  data [NAME ...] [data_dir=]      download and check data sets
  bench [KEY=VALUE ...]            measure time and memory of a step, ours and other libraries', or
                                   with suite=table of whole commands; keys are
                                   suite=step|depth|table, case, contender, repeats, device, out
  table RESULTS [sweep=] [rows=method] [columns=] [metrics=accuracy] [baseline=METHOD] [out=table]
        [KEY=VALUE ...]
                                   write the records with these settings (KEY=A,B: either), or of
                                   one sweep, as a table (Markdown, CSV, LaTeX): means over seeds,
                                   epsilons, and with baseline= differences paired by seed;
                                   best=validation chooses among the settings of each row
  report [results_dir=] [out=]     write one HTML page that compares all records; works offline
  track tracker=NAME [results_dir=] [KEY=VALUE ...]
                                   log finished records with these settings to wandb, tensorboard or
                                   csv; those that W&B already has are logged only with again=true
  publish [record=DIGEST] [results_dir=] [out=]
                                   write the records without their seeds and without anything
                                   computed from training data that epsilon does not cover; test
                                   metrics are kept
  checklist TABLE|RESULTS [method=] [baseline=dpsgd] [metric=test/accuracy] [out=checklist]
                                   answer what a reviewer asks of a comparison (data sets, seeds,
                                   significance, search, ablation, ...) from the records
  verify [TABLE|RECORD ...] [rerun=N]  check that records agree with their settings and ledgers, and
                                   tables with their records; rerun=N retrains the N quickest runs
  list [GROUP ...]                 print the configuration groups and their options, or for each
                                   GROUP that is named, what each of its options is

`dpbench --version` prints the version, and eval "$(dpbench --completion bash)" makes bash complete
commands, options and keys; so does zsh in its place in zsh, and in fish
`dpbench --completion fish | source`.

A run takes +table=NAME to use that table's settings for the chosen data set and method, and
+experiment=NAME for the settings in experiment/NAME.yaml. Commands that take options also find
those of plug-ins, and in --config-dir DIR or hydra.searchpath=[DIR].

Exit code: 0 if all is done, 1 if runs failed, your own code is refuted or an unexpected error
occurred, 2 if the request was
refused before any work, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, 141 if the output
was closed."""


OVERRIDES = ("run", "epsilon", "search", "challenge", "audit", "reproduce", "track")
"""The commands whose arguments are overrides of a configuration."""

OPTIONS = ("list", "data", "verify")
"""The commands whose arguments are names of groups, options and records."""

HELP = {"-h", "--help", "help"}

COMMANDS = tuple(re.findall(r"^  (\w+) ", USAGE, re.MULTILINE))


def main() -> None:
    """Run a command; a request that cannot be met ends with one sentence and exit code 2."""
    interrupts.exit_sooner()
    sys.excepthook = report
    with interrupts.listening(), checked_output():
        _main()


def _main() -> None:
    command, *arguments = sys.argv[1:] or ["--help"]
    if command in HELP:
        print(USAGE)
        return
    show_warnings_as_messages()
    try:
        check_encoding(sys.argv[1:])
        if command in FLAGS:
            print(FLAGS[command](*arguments))
        elif command not in COMMANDS:
            raise UserError(f"{command} is not a command: {nearest(command, COMMANDS)}")
        elif HELP & {*arguments}:
            print(usage_of(command))
        else:
            with file_errors_told():
                _command(command, arguments)
    except UserError as error:
        print_message(error)
        sys.exit(2)
    except KeyboardInterrupt:
        interrupts.exit_interrupted()


def _command(command: str, arguments: list[str]) -> None:
    """Run a command, which also finds the options in its `--config-dir`."""
    from dpbench.cli import commands
    from dpbench.config.experiments import with_experiment
    from dpbench.config.search_path import as_overrides, searching, split_folders

    folders, others = split_folders(arguments)
    if folders and command not in (*OVERRIDES, *OPTIONS):
        raise UserError(f"{command} takes no --config-dir.")
    passed = as_overrides(folders) if command in OVERRIDES else []
    with searching(folders):
        if command in OVERRIDES:
            others = with_experiment(others)
        commands.COMMANDS[command]([*others, *passed])


def _version(*_: str) -> str:
    return f"dpbench {__version__}"


def _completion(*shell: str) -> str:
    from dpbench.cli.completion import completion

    return completion(" ".join(shell), COMMANDS, OVERRIDES)


FLAGS: dict[str, Callable[..., str]] = {"--version": _version, "--completion": _completion}
"""Flags that may be given instead of a command."""


def usage_of(command: str) -> str:
    """The part of the usage about one command."""
    part = re.search(rf"^  {command} .*\n(?:   +.*\n)*", USAGE, re.MULTILINE)
    assert part
    more = (
        "`dpbench list` prints the options of each group, and `dpbench run --cfg job` all settings."
    )
    return f"dpbench {dedent(part[0]).strip()}\n\n{more}"
