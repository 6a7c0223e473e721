"""The command line: `dpbench COMMAND [KEY=VALUE ...]`.

What takes long to import is imported when somebody already listens to Ctrl-C.
"""

import re
import sys
from textwrap import dedent

from dpbench.cli.bugs import check_words, reported
from dpbench.errors import UserError, nearest, say_warnings_in_one_line, tell
from dpbench.training import interrupts

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
request was refused before any work, 130 after Ctrl-C, 143 after SIGTERM, 141 if nobody read the
output."""


HELP = {"-h", "--help", "help"}

COMMANDS = tuple(re.findall(r"^  (\w+) ", USAGE, re.MULTILINE))


def main() -> None:
    """Run a command; exit code 2, and one sentence, for what cannot be done."""
    with interrupts.listening(), reported():
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
            from dpbench.cli import commands

            commands.COMMANDS[command](arguments)
    except UserError as error:
        tell(error)
        sys.exit(2)
    except KeyboardInterrupt:
        interrupts.leave()


def usage_of(command: str) -> str:
    """What the usage says of one command."""
    said = re.search(rf"^  {command} .*\n(?:   +.*\n)*", USAGE, re.MULTILINE)
    assert said
    return f"dpbench {dedent(said[0]).strip()}\n\n`dpbench list` names what there is to set."
