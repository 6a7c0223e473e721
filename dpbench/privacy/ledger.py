"""The ledger: every access to private data, as frozen values that accountants can read.

A step draws a batch by a sampling law and makes one or more releases *from that same batch*.
Sampling amplifies the joint release, so a step is one sampled composition, not several.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from dpbench.system.errors import UserError
from dpbench.system.validate import fraction, integer, positive


@dataclass(frozen=True)
class GaussianMechanism:
    """A query plus Gaussian noise of standard deviation multiplier * sensitivity.

    failure: the probability, for one example in one step, that the sensitivity is exceeded, for
    any batch and any earlier releases. bands: the noise of a step is correlated with that of the
    bands - 1 steps before and after; see `dpbench.methods.dp_mf`. share: of those that the sampling
    law draws, an example is kept with a probability p of at least that, which earlier releases
    decide, and then moves the query by at most sensitivity * share/p.
    """

    noise_multiplier: float
    failure: float = 0.0
    bands: int = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        fraction("the share that is kept", self.share, one=True)
        fraction("the probability of a failure", self.failure, zero=True)
        integer("the number of bands", self.bands)


@dataclass(frozen=True)
class ToeplitzGaussian:
    """A query plus Gaussian noise that is correlated over all steps of a run.

    C times the noise of all steps is independent, of standard deviation multiplier * sensitivity; C
    is the matrix of `dpbench.privacy.toeplitz`, whose columns do not increase.
    """

    noise_multiplier: float
    decays: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        proper = all(0 <= decay < 1 for decay in self.decays)
        proper &= all(weight >= 0 for weight in self.weights) and sum(self.weights) <= 1
        if not proper or len(self.decays) != len(self.weights):
            raise UserError(
                f"decays must lie in [0, 1), and as many weights be at least 0, of sum at most 1: "
                f"got {self.decays} and {self.weights}."
            )


@dataclass(frozen=True)
class InverseToeplitzGaussian:
    """A query plus Gaussian noise of which each step's cancels part of the last few steps'.

    The noise of step t is multiplier * sensitivity times (z_t - sum_i taken_i z_(t-i)), times the
    norm of column t of C if `normalised`, where the draws z are independent, and C is the inverse
    of that matrix over `horizon` steps, with columns of norm 1 if `normalised`.
    """

    noise_multiplier: float
    taken: tuple[float, ...]
    normalised: bool
    horizon: int

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        integer("the horizon", self.horizon)
        if not all(0 <= share < 1 for share in self.taken) or sum(self.taken) >= 1:
            raise UserError(
                f"what is taken must be shares in [0, 1), of sum below 1: got {self.taken}."
            )
        if self.normalised and len(self.taken) != 1:
            raise UserError("columns are normalised only if noise cancels that of one step before.")


@dataclass(frozen=True)
class Exact:
    """A query answered without noise: epsilon is infinite."""


CoordinateLaw = Literal["logistic", "laplace", "gaussian"]


@dataclass(frozen=True)
class CoordinateMechanism:
    """Independent noise of one scale on each of `dimension` coordinates of bounded sensitivity.

    One example moves every coordinate by at most G, hence the sum by G sqrt(dimension) in L2: the
    scale of the noise is noise_multiplier times that L2 sensitivity. signed: only the signs are
    released. Gaussian noise with the sums released is a GaussianMechanism.
    """

    noise: CoordinateLaw
    noise_multiplier: float
    dimension: int
    signed: bool = False

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        integer("the number of coordinates", self.dimension)
        if self.noise == "gaussian" and not self.signed:
            raise UserError("Gaussian noise on an unsigned sum is a GaussianMechanism.")

    @property
    def shift(self) -> float:
        """G over the scale: the pure epsilon of one coordinate."""
        return 1 / (self.noise_multiplier * math.sqrt(self.dimension))


WholeRunGaussian = ToeplitzGaussian | InverseToeplitzGaussian
"""Noise that is correlated over a whole run."""

Mechanism = GaussianMechanism | WholeRunGaussian | CoordinateMechanism | Exact


@dataclass(frozen=True)
class Release:
    """One answer about a batch: the query, and the mechanism that answered it.

    claimed: the mechanism that the paper accounts for, if it differs. unsampled: whether an example
    may affect the answer in every step, even outside of the batch.
    """

    what: str
    mechanism: Mechanism
    claimed: Mechanism | None = None
    unsampled: bool = False


@dataclass(frozen=True)
class Poisson:
    """Each unit is in the batch with probability `rate`, independently of all others.

    unit: "example", or "user" with all of its examples. cycle: each unit has its turn in every
    cycle-th step, at a uniform place of the cycle that is independent of all others, and is in no
    other batch (cyclic Poisson sampling, Choquette-Choo et al. 2023, Algorithm 2).
    """

    rate: float
    unit: str = "example"
    cycle: int = 1

    def __post_init__(self) -> None:
        fraction("the sampling rate", self.rate, one=True)
        integer("the cycle of a sampling law", self.cycle)


@dataclass(frozen=True)
class TruncatedPoisson:
    """A Poisson sample from at most `size` units; of more than `limit`, a random `limit` are
    kept."""

    rate: float
    limit: int
    size: int
    unit: str = "example"


@dataclass(frozen=True)
class Allocation:
    """Each unit is in `turns` of every `steps` batches in a row, drawn uniformly and independently
    of all others; `turns` divides `steps`. unit: as for Poisson.
    """

    steps: int
    turns: int = 1
    unit: str = "example"

    @property
    def rate(self) -> float:
        return self.turns / self.steps


@dataclass(frozen=True)
class Shuffled:
    """Consecutive slices of a permutation; no accountant here covers its amplification."""

    batch_size: int
    unit: str = "example"


Sampling = Poisson | TruncatedPoisson | Allocation | Shuffled


@dataclass(frozen=True)
class Step:
    """One batch, and everything released from it."""

    sampling: Sampling
    releases: tuple[Release, ...]


def query(what: str, noise_multiplier: float, failure: float = 0.0) -> Step:
    """A Gaussian query of all examples, as a step of its own; failure: see GaussianMechanism."""
    release = Release(what, GaussianMechanism(noise_multiplier, failure))
    return Step(Poisson(1.0), (release,))


@dataclass(frozen=True)
class Ledger:
    """The steps of a run in order, run-length encoded.

    Adjacency is adding or removing one unit of the sampling, whether or not its place stays empty.
    """

    entries: tuple[tuple[Step, int], ...] = ()

    def after(self, step: Step, times: int = 1) -> "Ledger":
        """The ledger with `step` repeated `times` more times; UserError for less than once."""
        integer("the times of a step", times)
        if self.entries and self.entries[-1][0] == step:
            *head, (_, count) = self.entries
            return replace(self, entries=(*head, (step, count + times)))
        return replace(self, entries=(*self.entries, (step, times)))

    def then(self, other: "Ledger") -> "Ledger":
        """The ledger followed by the steps of another one."""
        ledger = self
        for step, times in other.entries:
            ledger = ledger.after(step, times)
        return ledger

    def first(self, steps: int) -> "Ledger":
        """The ledger of the first `steps` steps."""
        part = Ledger()
        for step, times in self.entries:
            taken = min(times, steps - part.steps)
            if taken:
                part = part.after(step, taken)
        return part

    @property
    def steps(self) -> int:
        return sum(times for _, times in self.entries)


LEDGER_CLASSES = {law.__name__: law for law in (*get_args(Mechanism), *get_args(Sampling))}


def to_plain(ledger: Ledger) -> list[dict]:
    """The ledger as plain data for records; the inverse of `from_plain`."""
    return [
        {
            "times": times,
            "sampling": _named(step.sampling),
            "releases": [_plain_release(release) for release in step.releases],
        }
        for step, times in ledger.entries
    ]


def _plain_release(release: Release) -> dict:
    plain = {"what": release.what, "mechanism": _named(release.mechanism)}
    claimed = {"claimed": _named(release.claimed)} if release.claimed else {}
    return plain | claimed | ({"unsampled": True} if release.unsampled else {})


def _named(value: Mechanism | Sampling) -> dict:
    absent = {"failure": 0, "bands": 1, "cycle": 1, "share": 1}.items()
    fields = {key: field for key, field in asdict(value).items() if (key, field) not in absent}
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
    return {"law": type(value).__name__, **plain}


def from_plain(entries: list[dict]) -> Ledger:
    """The ledger of a record; UserError for one that is none, since a record may have anything."""
    ledger = Ledger()
    try:
        for entry in entries:
            step = Step(_from_named(entry["sampling"]), tuple(map(_release, entry["releases"])))
            ledger = ledger.after(step, entry["times"])
    except (AttributeError, ArithmeticError, KeyError, TypeError) as error:
        raise UserError(f"the ledger is not one that dpbench writes ({error!r:.80}).") from error
    return ledger


def _release(plain: dict) -> Release:
    claimed = _from_named(plain["claimed"]) if "claimed" in plain else None
    mechanism = _from_named(plain["mechanism"])
    return Release(plain["what"], mechanism, claimed, plain.get("unsampled", False))


def _from_named(named: dict) -> Any:
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in named.items()}
    return LEDGER_CLASSES[fields.pop("law")](**fields)
