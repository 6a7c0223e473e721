"""`dpbench audit [KEY=VALUE ...]`: an attack on the epsilon of a run."""

import json
from collections.abc import Mapping
from pathlib import Path

from dpbench.audit.audit import GAMES, Audit, audit, check_auditable, record_of
from dpbench.audit.peers.contenders import CONTENDERS, audit_contender
from dpbench.config.settings import SETTINGS, key_of, split_settings
from dpbench.errors import UserError
from dpbench.execution.prepare import run_of
from dpbench.files import check_writable
from dpbench.tables.grid import Grid
from dpbench.tables.markdown import grid_lines
from dpbench.training.plan import Run
from dpbench.validate import fraction, integer, number, one_of, spelled_integer, spelled_number

DEFAULTS = {"canaries": "", "claim": "", "confidence": "0.95", "game": "run", "contender": ""}
"""The settings of an audit itself."""

ALONE, SHARED, STEPS = 100_000, 1_000, 5_000
"""How count canaries: each with a coordinate of its own, or all with the same thousands; and how
count steps with one canary."""

PEERS = {"run": 20_000, "step": STEPS, "bits": STEPS}
"""The same for contenders, which materialise the gradients of a batch."""

FOR_CONTENDERS = ("privacy", "batch_size", "epochs", "seed")
"""The settings of a run that other libraries have as well."""

MOST_CANARIES = 10_000_000

EPOCH = 142
"""Steps of an epoch, unless batch_size says otherwise."""

MADE_UP = (
    "dataset",
    "model",
    "users",
    "features",
    "normalization",
    "augmentation",
    "diagnostics",
    "validation",
    "mislabelled",
)
"""What the canaries take the place of."""

HEAD = (
    "method",
    "attacked",
    "canaries",
    "steps",
    "claimed",
    "by",
    "audited (own family)",
    "audited (GDP)",
    "audited (one run)",
    "audited / claimed",
    "verdict",
)


def run_audit(arguments: list[str]) -> str:
    """Attack one run, keep its record, and return the table and one JSON object."""
    settings, overrides = split_settings("audit", DEFAULTS, arguments)
    game = one_of("game", settings["game"], PEERS if settings["contender"] else GAMES)
    claim = settings["claim"]
    claimed = number("claim", spelled_number(claim), least=0) if claim else None
    confidence = fraction("confidence", spelled_number(settings["confidence"]))
    if settings["contender"]:
        result = contender_audit(settings, overrides, claimed, confidence)
        summary = {"contender": settings["contender"], **result.plain}
        return f"{_table(result)}\n\n{json.dumps(summary)}"
    run, canaries = prepared(overrides, settings["canaries"], game)
    folder = Path(run.config["results_dir"])
    check_writable(folder)
    result = audit(run, canaries, claimed, confidence, game)
    path = record_of(result).save(folder)
    summary = {"method": run.method.name, **result.plain, "record": str(path)}
    return f"{_table(result)}\n\n{json.dumps(summary)}"


def contender_audit(
    settings: Mapping[str, str],
    overrides: list[str],
    claimed: float | None = None,
    confidence: float = 0.95,
) -> Audit:
    """Attack another library, by the settings of an audit and the overrides of a run; UserError for
    settings that only methods of ours have."""
    name, game = one_of("contender", settings["contender"], CONTENDERS), settings["game"]
    for override in overrides:
        group = key_of(override).partition(".")[0]
        if group in {*SETTINGS} - {*FOR_CONTENDERS, *MADE_UP}:
            raise UserError(
                f"{override} is for methods of dpbench, and contender={name} has its own: set "
                f"{', '.join(FOR_CONTENDERS[:-1])} or {FOR_CONTENDERS[-1]}."
            )
    run, canaries = prepared(overrides, settings["canaries"] or str(PEERS[game]), game)
    return audit_contender(name, run, canaries, claimed, confidence, game)


def _table(result: Audit) -> str:
    return grid_lines(Grid("", HEAD, (line(result),)))


def prepared(overrides: list[str], canaries: str = "", game: str = "run") -> tuple[Run, int]:
    """The run of the overrides, and the number of canaries; UserError for settings that canaries
    take the place of.

    By default a run has 20 epochs at a rate of 1/142, steps by themselves a rate of 1, and the
    model stays where it is.
    """
    for override in overrides:
        if key_of(override).partition(".")[0] in MADE_UP:
            raise UserError(
                f"{override} is not for an audit to choose: canaries take the place of data and "
                "model. Set method, privacy, batch_size, epochs, schedule or seed."
            )
    _, run = run_of(overrides)
    check_auditable(run)
    usual = STEPS if game == "step" else SHARED if run.method.clip.per_coordinate else ALONE
    count = int(canaries) if canaries.isdecimal() else usual
    integer("canaries", spelled_integer(canaries or str(count)), least=100, most=MOST_CANARIES)
    size = count if game == "step" else max(1, count // EPOCH)
    added = [f"batch_size={size}", *_still(run)]
    return run_of([*added, *overrides])[1], count


def _still(run: Run) -> list[str]:
    """Where the learning rate decides on the noise, the model moves; its gradients do not."""
    return [] if run.method.noise_rule else ["optimizer.lr=0"]


def line(result: Audit) -> tuple[str, ...]:
    """One row of the table."""
    found = result.bounds
    return (
        result.game.trained,
        result.game.name,
        str(len(result.scores.values)),
        str(result.game.ledger.steps),
        f"{result.claim.epsilon:.3f}",
        result.claim.source,
        *(f"{epsilon:.3f}" for epsilon in (found.own, found.gdp, found.one_run)),
        f"{result.ratio:.2f}",
        result.verdict,
    )
