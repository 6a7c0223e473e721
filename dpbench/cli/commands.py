"""The commands that are more than a call: each takes the arguments after its name, imports only
what it needs, and returns what it does not print."""

import json
import sys
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, TextIO

from dpbench.cli.terminal import on_terminal, output_kept, show
from dpbench.runs.config.commands import DataCommand, RunCommand
from dpbench.runs.config.settings import key_of, split_settings
from dpbench.system.errors import UserError, print_message
from dpbench.system.validate import one_of

if TYPE_CHECKING:
    from dpbench.runs.execution.run_config import RunConfig


def run(arguments: list[str]) -> None:
    """One run, or that of a record, or with -m a sweep; exit code 1 if some runs of it failed. With
    --cfg or --info it prints what would be run."""
    from dpbench.cli import show_config
    from dpbench.runs.execution.run_config import single_run

    flags, overrides = show_config.split_flags(arguments)
    overrides = _with_record(overrides)
    if show_config.CONFIG[1] in flags:
        print(show_config.configuration(overrides))
    elif show_config.INFO in flags:
        print(show_config.information(overrides))
    else:
        with output_kept() as output:
            if show_config.MULTIRUN[0] in flags:
                _sweep(overrides, output)
            else:
                _run(single_run(overrides), output)


def _with_record(overrides: list[str]) -> list[str]:
    """The overrides with what reruns a record in the place of `record=`, if that is given."""
    settings, others = split_settings("run", RunCommand, overrides)
    if not settings.record:
        return overrides
    from dpbench.runs.config.compose import compose
    from dpbench.runs.execution.rerun import overrides_of, record_named

    if len(overrides) > len(others) + 1:
        raise UserError("run takes one record: rerun each by itself.")
    folder = Path(compose([o for o in others if key_of(o) == "results_dir"])["results_dir"])
    return [*overrides_of(record_named(settings.record, folder)), *others]


def _run(config: "RunConfig", output: TextIO | None) -> None:
    from dpbench.cli.run_summary import summary
    from dpbench.runs.records.code import STALE_RECORD, is_stale
    from dpbench.runs.records.divergence import remarks
    from dpbench.runs.records.epsilon import unspent
    from dpbench.runs.records.reading import load
    from dpbench.runs.records.trained_model import has_model, model_file

    if unfinished := config.is_unfinished():
        from dpbench.runs.execution.load_or_run import load_or_run  # which imports torch

        load_or_run(config)
    record = load(path := config.path)
    if record and record.status == "complete":
        print_message(summary(record, reused=not unfinished))
        if gap := unspent([(record.config, record.statement)]):
            print_message(gap)
    if not unfinished and (reason := config.why_not_tracked()):
        print_message(reason)
    if record and is_stale(record):
        print_message(STALE_RECORD)
    if record and has_model(record, config.results):
        seeded = record.privacy.get("arithmetic") == "float"
        warning = ": keep it to yourself, as its noise follows from the seed" if seeded else ""
        print_message(f"its trained model is {model_file(record, config.results)}{warning}.")
    print(path, file=output)
    for remark in remarks(path):
        print_message(remark)


def _sweep(overrides: list[str], output: TextIO | None) -> None:
    from dpbench.comparison.tables.sweep.command import command_for
    from dpbench.runs.config.experiments import with_experiment
    from dpbench.runs.config.overrides import expand
    from dpbench.runs.execution import sweep as sweeps
    from dpbench.runs.records.digest import scientific
    from dpbench.runs.records.sweep_list import write_list

    runs = [with_experiment(run) for run in expand(overrides)]
    sweep = sweeps.plan_sweep(sweeps.name_of(overrides), runs)
    configs = [scientific(run.config) for run in sweep.built.values()]
    hint = f"a table of this sweep: {command_for(sweep.folder, sweep.name, configs)}"
    try:
        write_list(sweep.folder, sweep.name, (path.stem for path in sweep.runs))
    except UserError:
        if sweep.unfinished():
            raise
        hint = ""  # a folder that cannot be written has the records, and no list of them
    failures = sweeps.run_and_report(sweep, on_record=partial(print, file=output, flush=True))
    for message in filter(None, (sweeps.summary(sweep), failures, hint)):
        print_message(message)
    if failures:
        sys.exit(1)


def epsilon(arguments: list[str]) -> None:
    """The privacy statement of a run, as one JSON object or, on a terminal, a card, or a table of
    several; trains nothing.

    The object has more than a record: the epsilons of other adjacencies, and `attacks`, upper
    bounds of what attacks achieve.
    """
    from dpbench.runs.config.experiments import with_experiment
    from dpbench.runs.config.overrides import expand, naming_run, swept_keys
    from dpbench.runs.execution.run_config import run_config

    keys, runs = swept_keys(arguments), expand(arguments)
    configs = []  # refused before torch is imported
    for number, overrides in enumerate(runs):
        with naming_run(runs, number):
            configs.append(run_config(with_experiment(overrides)))

    from dpbench.cli.epsilon_card import card, planned_runs
    from dpbench.privacy.profiles import attack_bounds, other_adjacencies
    from dpbench.runs.execution.prepare import prepare
    from dpbench.runs.training.plan import privacy_statement

    if keys:
        show(planned_runs(keys, runs, configs))
        return
    run, planned = prepare(configs[0])
    statement = privacy_statement(run, planned)
    more = {
        **other_adjacencies(statement, planned.ledger),
        "attacks": attack_bounds(statement, planned.ledger),
    }
    if on_terminal():
        show(card(run.config, statement, more))
    else:
        print(json.dumps(statement | more))


def reproduce(arguments: list[str]) -> str:
    """Run what is missing for a paper's table or figure, then write it."""
    from dpbench.comparison.reproduce.command import reproduce as rerun

    if not arguments:
        raise UserError(
            "reproduce needs a table, such as demo or misalignment_table5: `dpbench list table` "
            "describes them all."
        )
    if "=" in arguments[0]:
        raise UserError(f"reproduce needs the table first: dpbench reproduce TABLE {arguments[0]}")
    return rerun(arguments[0], arguments[1:])


def search(arguments: list[str]) -> None:
    """Run the missing trials of a search, then write and print all of them, best first; exit code 1
    if some of its runs failed."""
    from dpbench.comparison.search.command import search as run_trials

    failures: list[str] = []
    show(run_trials(arguments, failures.append))
    for message in failures:
        print_message(message)
    if failures:
        sys.exit(1)


def track(arguments: list[str]) -> None:
    """Log finished records, and print how many; exit code 1 if a tracker failed."""
    from dpbench.comparison.dashboard.track import track as log

    failures: list[int] = []
    print(log(arguments, failures.append))
    if failures:
        sys.exit(1)


def challenge(arguments: list[str]) -> None:
    """Enter a method into a challenge, and print its page; exit code 1 if a recount finds that
    records are wrong."""
    from dpbench.benchmarks.challenge.command import challenge as enter

    page, problems = enter(arguments)
    if page:
        show(page)
    for problem in problems:
        print_message(problem)
    if problems:
        sys.exit(1)


def data(arguments: list[str]) -> str | None:
    """Download and check the named data sets, or all; the page of the user's own data."""
    settings, names = split_settings("data", DataCommand, arguments)
    if any("=" in name for name in names):
        from dpbench.cli.intake import intake_page
        from dpbench.runs.config.spelling import check_spelling

        check_spelling("data", names, DataCommand.__struct_fields__)

        return intake_page(names, settings.out)
    if settings.out:
        raise UserError(
            f"out={settings.out} is for the page of your own data, dataset=csv dataset.file=FILE: "
            "leave it out."
        )
    _download(names, settings.data_dir)
    return None


def _download(names: list[str], data_dir: str) -> None:
    from dpbench.learning.data.custom.public_settings import SOURCES
    from dpbench.runs.config.search_path import options
    from dpbench.runs.execution.prepare import run_of
    from dpbench.runs.execution.run_config import run_config

    own = {source.option for source in SOURCES.values()}  # which a name is not enough to download
    known = [name for name in options("dataset") if name not in own]
    for name in names:
        if name in own or (name not in known and Path(name).exists()):
            raise UserError(
                f"{name} is no data set by name: data of your own are described by dpbench data "
                "dataset=csv dataset.file=FILE, or dataset=images dataset.folder=FOLDER."
            )
        one_of("dataset", name, known)
    requested, failed = names or known, []
    for name in requested:
        config = run_config([f"dataset={name}"]).changed(data_dir=data_dir)
        try:
            loaded = run_of(config).load(config.data_folder)
        except UserError as reason:
            if len(requested) == 1:
                raise
            print_message(reason)
            failed.append(name)
        else:
            print(f"{name}: {len(loaded.train)} training and {len(loaded.test)} test examples")
    if failed:
        raise UserError(f"missing, or not as published: {', '.join(failed)}.")


def listing(arguments: list[str]) -> None:
    """Print the configuration groups with their options, or what each option of some groups is, or
    some of these."""
    from dpbench.runs.config.search_path import EXPERIMENTS, description, groups, options

    everything = sorted([*groups(), EXPERIMENTS])
    chosen = [word for word in arguments if word in everything]
    chosen = chosen or [group for group in everything if {*arguments} & {*options(group)}]
    known = [(group, option) for group in chosen for option in options(group)]
    what, names = (chosen[0], [option for _, option in known]) if chosen else ("group", everything)
    named = [one_of(what, word, names) for word in arguments if word not in everything]
    for group, option in known:
        if not named or option in named:
            print(f"{group}={option}")
            if text := description(group, option):
                print(indent(text, "    "))
    for group in [] if arguments else everything:
        print(f"{group}: {', '.join(options(group))}")


def audit(arguments: list[str]) -> None:
    """Attack the epsilon of a run, or audit code of one's own; print a table or page, and one JSON
    object as the last line; exit code 1 if one's own code is refuted."""
    from dpbench.audit.command import run_audit

    text, refuted = run_audit(arguments)
    print(text)
    if refuted:
        sys.exit(1)


def verify(arguments: list[str]) -> None:
    """Check a results folder and print what is wrong; exit code 1 if anything is."""
    from dpbench.comparison.verify.command import verify as check

    done, problems = check(arguments)
    for problem in problems:
        print(f"{problem.source} {problem.description}")
    print(done)
    if problems:
        sys.exit(1)
