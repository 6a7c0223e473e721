"""`dpbench release`: a private model of one's own table, as a folder that stands alone."""

import inspect
import io
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from dpbench.learning.data.custom.preparation import TablePreparation
from dpbench.learning.data.custom.table_rows import TableRows
from dpbench.learning.data.derive.users import Column
from dpbench.learning.data.probe import probe
from dpbench.learning.data.tokens import TextPreparation
from dpbench.privacy.statement import smaller_bound
from dpbench.runs.config.commands import ReleaseCommand
from dpbench.runs.config.settings import key_of, split_settings
from dpbench.runs.execution import predict
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import RunConfig, single_run
from dpbench.runs.records.epsilon import Terms, delta_text, percent_rounded_up, rounded_up
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.records.trained_model import load_model, model_path
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError, print_message
from dpbench.system.files import check_writable, new_folder
from dpbench.system.validate import for_column, naming

DEFAULTS = ("dataset=csv", "model=logistic", "optimizer.lr=1")
"""Settings of a table that the user may replace; for all others the defaults of a run hold."""

FIXED = ("noise=secure", "save_model=true")
"""Settings without which a model must not leave its owner."""


def release(arguments: list[str]) -> Path:
    """Train a private model, unless it is there, and return the folder that it is released in.

    Raises UserError, before any training, for a folder that exists, for data other than one's own
    table, for a preparation that reads rows outside of the account, and without a proven epsilon.
    """
    own, overrides = split_settings("release", ReleaseCommand, arguments)
    fixed = {key_of(setting) for setting in FIXED}
    _check_new(own.out)
    if given := [override for override in overrides if key_of(override) in fixed]:
        raise UserError(f"{given[0]} is refused: a release has {' and '.join(FIXED)}.")
    config = single_run([*DEFAULTS, *overrides, *FIXED])
    run = run_of(config)
    prepared = _preparation(run)
    if problems := [*_uncovered(run, prepared, {*map(key_of, overrides)})]:
        raise UserError(f"what is released of the data has to be covered: {' '.join(problems)}")
    check_writable(own.out.absolute().parent, "out")
    record = load(load_or_run(config))
    assert record
    try:
        _write(own, run, config, record, prepared)
    except OSError:
        _check_new(own.out)  # another process was faster
        raise
    print_message(f"released: {own.out}. Read {own.out / 'PRIVACY.md'} before you give it away.")
    return own.out


def _check_new(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise UserError(f"out={out} exists: name a new folder.")


def _preparation(run: Run) -> TablePreparation | TextPreparation:
    """How rows become inputs; UserError for other data than the user's own table."""
    if not isinstance(run.dataset, TableRows):
        raise UserError(
            "release takes a table of your own, dataset.file=FILE dataset.target=NAME, and all of "
            "it as it is: leave out validation, features and mislabelled."
        )
    if run.dataset.task == "language_model":
        raise UserError(
            "release has no prediction for a language model: run with save_model=true "
            "noise=secure, and give away what load_model reads."
        )
    return run.dataset.preparation(run.seed) or run.dataset.text_preparation()


def _uncovered(
    run: Run, prepared: TablePreparation | TextPreparation, given: Collection[str]
) -> Iterator[str]:
    """What no epsilon would cover, each as a sentence with the way out. given: keys of settings."""
    stated = privacy_statement(run, plan(run))
    if stated["guarantee"] != "proven" or smaller_bound(stated) is None:
        yield f"{run.method.name} has no proven epsilon ({stated['why']}): choose another method."
    if run.normalization:
        yield (
            "normalization: a release takes the public bounds as they are, so leave it out, with "
            "bounds of all numbers and lists of all categories."
        )
    if isinstance(run.users, Column) and "users.most" not in given:
        yield (
            "users.most: without it, the page would have the largest number of rows of anybody, so "
            "set how many are trained on at most, as in users.most=6."
        )
    if isinstance(prepared, TextPreparation):
        return
    dataset: Any = run.dataset
    numbers = [*prepared.numbers, *([dataset.target] if dataset.task == "regression" else [])]
    unknown = [name for name in numbers if name not in (dataset.bounds or {})]
    if unknown and dataset.standardise == "train":
        yield (
            f"{', '.join(unknown)}: means and deviations of the rows are exact, so give the public "
            f"range of each, as in {for_column('dataset.bounds', unknown[0], '[0, 100]')}."
        )
    if unlisted := [name for name in prepared.categories if name not in prepared.listed]:
        yield (
            f"{', '.join(unlisted)}: its categories would be those of all rows, so list them, as "
            f"in {for_column('dataset.categories', unlisted[0], '[a, b]')}, or leave it out by "
            f"{naming('dataset.drop', unlisted[:1])}."
        )


def _write(
    own: ReleaseCommand,
    run: Run,
    config: RunConfig,
    record: Record,
    prepared: TablePreparation | TextPreparation,
) -> None:
    model = load_model(model_path(config.results, record.digest, run.noise))
    about = msgspec.to_builtins(prepared)
    if isinstance(prepared, TextPreparation):
        text = config["dataset"]["text"]
        about |= {"text": [text] if isinstance(text, str) else [*text]}
    texts = {
        "preparation.json": json.dumps(about, indent=1, default=lambda value: value.item()),
        "privacy.json": json.dumps({**record.statement, "notes": [*_notes(run)]}, indent=1),
        "PRIVACY.md": _page(run, record, own.test),
        "predict.py": inspect.getsource(predict),
    }
    exported = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # of the exporter, on its own parts
        inputs = probe(run.dataset, 1).inputs[:1]
        torch.export.save(torch.export.export(model, (inputs,)), exported)
    with new_folder(own.out.absolute()) as part:
        for name, text in texts.items():
            (part / name).write_text(text, encoding="utf-8")
        (part / "model.pt2").write_bytes(exported.getvalue())


PAGE = """\
# What this model tells about its training data

**Epsilon {epsilon} at delta {delta}** ({by}, an upper bound, {level}).

Whoever has this folder, whatever else they know, learns hardly more about any one {whom} than from
a model that was trained without it. Told that a {unit} is either in the training data or not, they
guess right at most {advantage} more often than wrong.

| | |
|---|---|
| covered | all numbers in `model.pt2`, and so all predictions, however many |
| protected | one {whom}, added or removed ({adjacency}) |
| batches | {batches}, {steps:,} steps{rate} |
| noise | multiplier {noise:.4g}, from a secret key that was not kept |
| to recompute | `privacy.json` has the ledger: what was released, how often, with how much noise |

Not covered:

{limits}
{notes}
To predict: `python predict.py new.csv`, with Python, torch{tokenizers}, and nothing else.
"""


def _page(run: Run, record: Record, with_test: bool) -> str:
    statement = record.statement
    by, terms, unit = smaller_bound(statement), Terms.of(statement), statement["unit"]
    assert by
    bounds: Mapping[str, Any] = statement.get("attacks") or {}
    rate = statement.get("sample_rate")
    return PAGE.format(
        epsilon=rounded_up(statement[by] or 0.0),
        delta=delta_text(statement["delta"]),
        by=by.upper(),
        level=statement["guarantee"],
        whom=f"{unit} with all of its rows" if unit == "user" else "row",
        unit="person" if unit == "user" else "row",
        advantage=percent_rounded_up(bounds.get("membership_advantage", 1.0)),
        adjacency=terms.text(["unit", "zero_out"]),
        batches=terms.batches,
        steps=statement["steps"],
        rate="" if rate is None else f" at sampling rate {rate:.4g}",
        noise=statement["noise_multiplier"],
        limits=_listed(_limits(run, record, with_test)),
        notes=f"\nTo know:\n\n{_listed(notes)}\n" if (notes := [*_notes(run)]) else "",
        tokenizers=" and tokenizers" if getattr(run.dataset, "text", None) else "",
    )


def _listed(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _notes(run: Run) -> Iterator[str]:
    """The notes of a run but for those of its table, all of whose preparation is public."""
    return (note for note in run.notes if note not in run.dataset.notes)


def _limits(run: Run, record: Record, with_test: bool) -> Iterator[str]:
    if record.statement["unit"] == "example":
        yield "A person with several rows: k rows of one person have about k times the epsilon."
    yield "Other models or numbers from the same data: their epsilons add up with this one."
    yield "A choice of settings, or of this model among others, that looked at the data."
    yield (
        "What is taken as public: the names of columns and which of them have gaps, the classes, "
        "ranges and categories in `preparation.json`, and the numbers of rows and steps."
    )
    if getattr(run.dataset, "text", None):
        yield "The tokenizer in `preparation.json`: made from these texts, it tells words of them."
    if with_test:
        accuracy = {k: v for k, v in record.metrics.items() if k in ("test/accuracy", "test/r2")}
        for name, value in accuracy.items():
            yield f"{name} is {value:.4f}: exact, of rows that were not trained on."
