"""Attacks as tests make them, and the noise that a mutant leaves out."""

from dpbench.audit.audit import GAMES, NominalEpsilon, refuted_parts
from dpbench.audit.game import Game
from dpbench.audit.inference import strongest_attack
from dpbench.audit.request import prepare_audit
from dpbench.step.mechanism.noise import Gaussian

SHORT = ["privacy.noise_multiplier=1", "privacy.delta=0.001", "seed=1"]


def run_of(*overrides: str, canaries: int = 20_000, rate: float = 1.0, steps: int = 9):
    """The run of so many steps that an audit is of."""
    epochs = round(steps * rate)
    usual = [f"batch_size={round(canaries * rate)}", f"epochs={epochs}"]
    return prepare_audit([*SHORT, *usual, *overrides], canaries)[0]


def is_refuted(
    *overrides: str, canaries: int = 20_000, rate: float = 1.0, steps: int = 9, game: str = "run"
) -> bool:
    """As `audit` judges a proven epsilon, without its lower bounds, which take longer."""
    run = run_of(*overrides, canaries=canaries, rate=rate, steps=steps)
    return bool(what_is_refuted(GAMES[game](run, canaries, True)))


def what_is_refuted(played: Game) -> tuple[str, ...]:
    """The releases that refute the proven epsilon of a game."""
    scores = strongest_attack(played.attacks, played.seed)
    return refuted_parts(played, scores, NominalEpsilon(0.0, "PLD", proven=True))


def less_noise(by: float):
    """A mutant that adds `by` times the noise."""

    def mutate(patch):
        add = Gaussian.add

        def mutant(self, total, sensitivity, multiplier, stream):
            return add(self, total, sensitivity, by * multiplier, stream)

        patch.setattr(Gaussian, "add", mutant)

    return mutate
