"""`dpbench challenge method=NAME`: the search and the tested runs of an entry, or their recount."""

import math
import statistics
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from dpbench.comparison.search.command import run_search
from dpbench.comparison.search.request import SearchRequest
from dpbench.comparison.search.samplers import SAMPLERS
from dpbench.comparison.verify.records import contradictions
from dpbench.runs.config.commands import ChallengeCommand
from dpbench.runs.config.literals import literal
from dpbench.runs.config.settings import key_of, split_settings
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.execution.sweep import plan_sweep, run_and_report
from dpbench.runs.records.code import stale_among
from dpbench.runs.records.collect import RECORDS
from dpbench.runs.records.folder import CHALLENGES, RUNS
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, counted, print_message
from dpbench.system.files import check_writable, write_atomically

from .entry import Entry, Outcome, check_entry, entry_of, read_submission
from .page import render
from .protocol import USUAL, protocol_of


def challenge(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The page of an entry as Markdown, and what is wrong with the records of a recount.

    After a message with the cost, runs what is missing; with `plan=true` nothing. Writes
    `results/challenges/NAME.md`, and NAME.records.jsonl with all of its runs, which others can
    submit and recount: with `recount=FILE`, choices and numbers are those of the file's records,
    and what it lacks is run again. Raises UserError for what the protocol does not leave open.
    """
    settings, overrides = split_settings("challenge", ChallengeCommand, arguments)
    check_entry(overrides)
    protocol = protocol_of(settings.version or USUAL)
    if settings.recount:
        if settings.plan:
            raise UserError("a recount has no plan=true: without it, it trains what is missing.")
        given = read_submission(Path(settings.recount))
        with tempfile.TemporaryDirectory() as folder:
            for one in given:
                write_atomically(Path(folder) / RUNS / f"{one.digest}.json", one.json().encode())
            kept = [o for o in overrides if key_of(o) != "results_dir"]
            entry = entry_of(protocol, settings.name, [*kept, f"results_dir={literal(folder)}"])
            _check_trials(entry, {one.digest for one in given}, settings.recount)
            page, records = _compared(entry)
        return page, list(_problems(given, {record.digest for record in records}))
    entry = entry_of(protocol, settings.name, overrides)
    print_message(cost(entry))
    if settings.plan:
        return "", []
    check_writable(entry.results / CHALLENGES)
    page, records = _compared(entry)
    if stale := stale_among(records):
        print_message(stale)
    lines = sorted(record.json() for record in records)
    for suffix, text in (("md", page), (RECORDS, "".join(f"{line}\n" for line in lines))):
        write_atomically(entry.results / CHALLENGES / f"{entry.stem}.{suffix}", text.encode())
    print_message(f"written: {entry.results / CHALLENGES / entry.stem}.{{md,{RECORDS}}}")
    return page, []


def cost(entry: Entry) -> str:
    """The runs of an entry, and the time that they take if they are as fast as the baselines'."""
    rules, seeds = entry.protocol.rules, len(entry.protocol.seeds)
    requests = [*entry.requests]
    trials = sum(request.count for request in requests)
    finals = rules.final_seeds * sum(min(rules.finalists, r.count) for r in requests)
    tested = seeds * len(entry.searches)
    baselines = entry.protocol.baselines().values()
    records = [record for by_method in baselines for each in by_method.values() for record in each]
    seconds = statistics.fmean(record.provenance["seconds"] for record in records)
    runs = trials + finals + tested
    minutes = math.ceil(runs * seconds / 60)
    return (
        f"{entry.protocol.target.name} takes {counted(runs, 'run')} of {entry.name}: "
        f"{trials} trials, {finals} of finalists and {tested} that are tested; about "
        f"{counted(minutes, 'minute')} one after another, if they take as long as the baselines' "
        "(jobs=N: in N processes). Those that have a record are not repeated."
    )


def _check_trials(entry: Entry, digests: Collection[str], file: str) -> None:
    """UserError for a file without a trial of the entry, which would be trained from its start."""
    for request in entry.requests:
        first = SAMPLERS[request.options.by](request.space, request.count, request.options.draw, {})
        runs = (run for c in first for run in request.runs(request.space.values(c)))
        if any(isinstance(run, RunConfig) and run.digest in digests for run in runs):
            return
    raise UserError(
        f"recount={file} has no trial of {entry.name} with these settings and this search space: "
        "give those of the command on its page."
    )


def _compared(entry: Entry) -> tuple[str, list[Record]]:
    """The page, and all records behind it."""
    outcomes = [_outcome(entry, requests) for requests in entry.searches]
    return render(entry, outcomes), [r for outcome in outcomes for r in outcome.records]


def _outcome(entry: Entry, requests: Sequence[SearchRequest]) -> Outcome:
    """The searches under a condition and the tested runs of what they chose; UserError if one
    chose none, or a run cannot be made."""
    searches = tuple(run_search(request, print_message) for request in requests)
    tested: list[Record] = []
    for number, searched in enumerate(searches, 1):
        request = searched.request
        if not searched.chosen:
            raise UserError(f"no trial of {request.name} has numbers for every seed.")
        runs = entry.protocol.tested(request, searched.chosen[0].values, number)
        sweep = plan_sweep(request.name, runs)
        if failures := run_and_report(sweep):
            raise UserError(failures)
        tested += (record for path in sweep.runs if (record := load(path)))
    return Outcome(searches, tuple(tested))


def _problems(given: Sequence[Record], used: Collection[str]) -> Iterator[str]:
    """What is wrong with submitted records, as sentences."""
    digests = [one.digest for one in given]
    if missing := len({*used} - {*digests}):
        yield f"The file lacks {counted(missing, 'run')} of the protocol: made here again."
    if others := len({*digests} - {*used}):
        yield f"The file has {counted(others, 'record')} of other runs, which count for nothing."
    if again := len(digests) - len({*digests}):
        yield f"The file has {counted(again, 'record')} of runs it has already; the last counts."
    for one in given:
        yield from (f"{one.source} {said}" for said in contradictions(one))
