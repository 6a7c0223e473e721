"""The command line: `dpbench COMMAND [KEY=VALUE ...]`. Modules that take long to import are
imported only after Ctrl-C is handled."""

import sys
from collections.abc import Sequence

from dpbench.cli.crash_report import checked_output, plugin_in, report
from dpbench.cli.registry import COMMANDS, MEANT, Command
from dpbench.system import interrupts
from dpbench.system.errors import (
    UserError,
    nearest,
    os_errors_reported,
    print_message,
    show_warnings_as_messages,
)
from dpbench.system.paths import check_working_folder
from dpbench.system.version import __version__

FOOT = """\
`dpbench help COMMAND` prints the settings of a command, `dpbench help COMMAND KEY` what a setting
of runs means, and `dpbench --version` the version.
eval "$(dpbench --completion bash)" makes bash complete commands, options and keys; so does zsh in
its place in zsh, and in fish `dpbench --completion fish | source`.

A run takes +table=NAME to use that table's settings for the chosen data set and method, and
+experiment=NAME for the settings in experiment/NAME.yaml. Commands that take options also find
those of plug-ins, and in --config-dir DIR or hydra.searchpath=[DIR].

Exit code: 0 if all is done, 1 if runs failed, your own code is refuted or an unexpected error
occurred, 2 if the request was refused before any work, 130 after Ctrl-C, 143 after SIGTERM, 129
after SIGHUP, 140 after SIGUSR2, 141 if the output was closed."""


HELP = {"-h", "--help", "help"}


def main() -> None:
    """Run a command; a request that cannot be met ends with one sentence and exit code 2."""
    interrupts.exit_sooner()
    sys.excepthook = report
    with interrupts.listening(), checked_output():
        _main()


def _main() -> None:
    command, *arguments = sys.argv[1:] or ["--help"]
    about: list[str] = []
    if command in HELP and arguments:  # help COMMAND [KEY ...]
        command, arguments, about = arguments[0], ["--help"], arguments[1:]
    if command in HELP:
        print(usage())
        return
    show_warnings_as_messages()
    try:
        if command == "--version":
            print(f"dpbench {__version__}")
        elif command == "--completion":
            from dpbench.cli.completion import completion

            print(completion(" ".join(arguments)))
        elif command not in COMMANDS:
            meant = MEANT.get(command)
            hint = f"did you mean {meant}?" if meant else nearest(command, COMMANDS)
            raise UserError(f"{command} is not a command: {hint}")
        elif HELP & {*arguments}:
            print(usage_of(COMMANDS[command], about))
        else:
            check_working_folder()
            with os_errors_reported():
                _run(COMMANDS[command], arguments)
    except UserError as error:
        print_message(error)
        sys.exit(2)
    except KeyboardInterrupt:
        interrupts.exit_interrupted()
    except SystemExit as error:
        if plugin_in(error):  # which ends the command without a word, and as if all were done
            raise RuntimeError(f"exit {error.code}").with_traceback(error.__traceback__) from None
        raise


def _run(command: Command, arguments: list[str]) -> None:
    """Run a command, which also finds the options in its `--config-dir`, and print what it gives:
    a page, which a terminal lays out, or a path."""
    from dpbench.cli.terminal import show
    from dpbench.runs.config.experiments import with_experiment
    from dpbench.runs.config.search_path import as_overrides, searching, split_folders
    from dpbench.runs.config.spelling import check_spelling

    folders, others = split_folders(arguments)
    if folders and not command.takes:
        raise UserError(f"{command.name} takes no --config-dir.")
    with searching(folders):
        if command.takes == "overrides":
            check_spelling(command.name, others, command.keys)
            others = [*with_experiment(others), *as_overrides(folders)]
        given = command.function()(others)
    if isinstance(given, str):
        show(given)
    elif given is not None:
        print(given)


def usage() -> str:
    """The help: all commands, and what concerns them all."""
    parts = (command.text() for command in COMMANDS.values())
    return "\n".join(["dpbench COMMAND [KEY=VALUE ...]\n", *parts, f"\n{FOOT}"])


def usage_of(command: Command, about: Sequence[str] = ()) -> str:
    """The part of the help about one command, with its own settings; or about some settings."""
    if about:
        from dpbench.cli.setting_help import meaning

        return "\n".join(command.entry(word) or meaning(word) for word in about)
    return (
        f"{command.page()}\n\n`dpbench help {command.name} KEY` says what a setting of runs means, "
        "`dpbench list` has the options\nof each group, and `dpbench run --cfg job` prints all "
        "settings of a run."
    )
