"""What an audit is asked to attack: its settings, its run and its number of canaries."""

from collections.abc import Iterable

from dpbench.audit.game import check_auditable
from dpbench.runs.config.settings import SETTINGS, key_of
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config, single_run
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError

CANARIES, CANARIES_OF_SIGNS = 100_000, 2**15
"""Default numbers of canaries with one coordinate each, and of those that share all coordinates."""

STEPS, RUNS, SEARCHES = 5_000, 1_000, 20_000
"""Default numbers of steps, of runs and of searches with one canary."""

OF_GAMES = {
    **dict.fromkeys(("step", "network", "cut", "normalization", "columns", "conformal"), STEPS),
    **dict.fromkeys(("memory", "temperature"), RUNS),
    "search": SEARCHES,
}
"""Default numbers by game, except for the game of a run."""

FOR_CONTENDERS = {"run": 20_000, "step": STEPS, "bits": STEPS}
"""Default numbers by game for contenders, which materialise the gradients of a batch."""

COMMON_SETTINGS = ("privacy", "batch_size", "epochs", "seed")
"""The settings of a run that other libraries have too."""

DEFAULT_PRIVACY = "privacy=noise1"
"""A noise multiplier, since a noise that is calibrated to an epsilon differs between methods."""

STEPS_PER_EPOCH = 142
"""At the default batch_size."""

REPLACED = tuple(name for name, setting in SETTINGS.items() if setting.data)
"""The settings that canaries replace."""

CHOSEN = ("batch_size", "optimizer.lr")
"""The settings of an audited run that follow from the number of canaries unless they are set."""


def prepare_audit(
    overrides: list[str], canaries: int | None = None, game: str = "run"
) -> tuple[Run, int]:
    """The run of the overrides, and the number of canaries; UserError for settings they replace.

    By default noise multiplier 1, 20 epochs at a sampling rate of 1/142 (single steps: a rate of
    1), and a learning rate of 0, except that of a network.
    """
    for override in overrides:
        if key_of(override).partition(".")[0] in REPLACED:
            raise UserError(
                f"{override} cannot be set in an audit, whose canaries replace data and model: set "
                "method, privacy, batch_size, epochs, schedule or seed."
            )
    overrides = [DEFAULT_PRIVACY, *overrides]
    run = run_of(config := single_run(overrides))
    if config["save_model"]:
        raise UserError("an audit keeps no model: leave out save_model=true.")
    check_auditable(run)
    shared = run.method.clip.sensitivity.per_coordinate
    of_run = CANARIES_OF_SIGNS if shared else CANARIES
    count = canaries or OF_GAMES.get(game, of_run)
    size = count if game == "step" else max(1, count // STEPS_PER_EPOCH)
    # A learning rate that determines the noise stays: the model moves, but not its gradients.
    moves = game == "network" or run.method.noise_rule
    frozen = [] if moves else ["optimizer.lr=0"]
    words = [f"batch_size={size}", *frozen, *overrides]
    return run_of(run_config(words), bool(frozen)), count


def check_for_contender(name: str, overrides: Iterable[str]) -> None:
    """Raise UserError for an override of a run that another library does not have."""
    for override in overrides:
        group = key_of(override).partition(".")[0]
        if group in {*SETTINGS} - {*COMMON_SETTINGS, *REPLACED}:
            raise UserError(
                f"{override} is for methods of dpbench, and contender={name} has its own: set "
                f"{', '.join(COMMON_SETTINGS[:-1])} or {COMMON_SETTINGS[-1]}."
            )
