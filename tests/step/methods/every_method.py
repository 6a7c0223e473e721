"""The methods of the suite as cases of tests, and stand-ins for the parts of a method."""

import dataclasses
import itertools
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from dpbench.learning.data.derive.users import iid
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.toeplitz import column_norms, encoded
from dpbench.runs.config import buildable
from dpbench.runs.config.search_path import options
from dpbench.runs.config.space import SEARCH
from dpbench.step.clipping import CLIPS, STYLES
from dpbench.step.mechanism.gradient import Gradient
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import Noise
from dpbench.step.methods.dp_mf_inverse import InverseBandedGaussian
from dpbench.system.paths import conf_folder
from tests.problems import Made, problem

VARIANTS = ("corrected", "paper")
EPSILONS = ("rdp", "pld", "gdp")
MULTIPLIER, EXPECTED = 0.9, 8.0


@cache
def settings_of(name: str) -> dict:
    """As the file has them: composing takes a second for all, in every worker."""
    file = conf_folder() / "method" / f"{name}.yaml"
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {key: value for key, value in settings.items() if key != SEARCH}


def cases() -> list:
    """(method, variant), with no variant for methods that have none."""
    return [
        pytest.param(name, variant, id=f"{name}-{variant}" if variant else name)
        for name in options("method")
        for variant in (VARIANTS if "variant" in settings_of(name) else [None])
    ]


def combinations(name: str) -> list[str]:
    """As "NAME clip=CLIP style=STYLE", all that can be combined with a method beside its own."""
    if not isinstance(settings_of(name).get("clip"), str):
        return []
    refused = {("abadi", "flat"), ("batch", "layerwise")}  # the first is the method itself
    if name in ("dpsgd_quantile", "dpsgd_bounded"):
        refused |= set(itertools.product(("batch", "none"), STYLES))
    pairs = [pair for pair in itertools.product(CLIPS, STYLES) if pair not in refused]
    return [f"{name} clip={clip} style={style}" for clip, style in pairs]


@cache
def method_of(name: str, variant: str | None) -> Method:
    """The method of a YAML file, on data with as many groups as it needs."""
    name, *others = name.split()
    overrides = {key: yaml.safe_load(text) for key, text in (o.split("=") for o in others)}
    own = {"variant": variant} if variant else {}
    method = buildable.build("method", {**settings_of(name), **own, **overrides})
    users = iid(20, 0.0) if method.users_only else None
    return method.bind(problem(Made(tuple("abc"[: method.groups or 3])), users, steps=99))


def other_clips(*names: str) -> list:
    """The combinations of these methods as cases."""
    return [pytest.param(one, None, id=one) for name in names for one in combinations(name)]


def proofs(cases: list) -> list:
    return [case for case in cases if method_of(*case.values).guarantee.level == "proven"]


APART = pytest.param("dpsgd style=layerwise", "paper", id="dpsgd style=layerwise-paper")
EVERY = [*cases(), APART, pytest.param("dpsgd clip=batch style=flat", None, id="dpsgd clip=batch")]
every = pytest.mark.parametrize(("name", "variant"), EVERY)
proven = pytest.mark.parametrize(("name", "variant"), proofs(EVERY))
proven_anywhere = pytest.mark.parametrize(
    ("name", "variant"), proofs(cases() + other_clips(*options("method")))
)
with_counts = pytest.mark.parametrize(
    ("name", "variant"),
    [
        case
        for case in proofs([*EVERY, *other_clips("dpsgd_quantile", "dpsgd_bounded")])
        if method_of(*case.values).clip.query is not None
    ],
)


def those(holds):
    """A mark for a test of the methods for which something holds; there must be some."""
    cases = [case for case in EVERY if holds(method_of(*case.values))]
    assert cases
    return pytest.mark.parametrize(("name", "variant"), cases)


private = those(lambda method: method.private)


@Noise.register
class Heard:
    """A noise that is another one, and notes each sum, sensitivity and result."""

    def __init__(self, noise):
        self.noise, self.private, self.calls = noise, noise.private, []
        self.bands = noise.bands

    def advance(self, total, stream):
        self.noise = self.noise.advance(total, stream)
        return self

    def add(self, total, sensitivity, multiplier, stream):
        before = total.clone()
        noisy = self.noise.add(total, sensitivity, multiplier, stream)
        self.calls.append((before, float(sensitivity), noisy.clone()))
        return noisy

    def mechanism(self, multiplier):
        return self.noise.mechanism(multiplier)

    def independent(self, ws):
        """The draws that noise of these steps was made of: C w, where w is correlated."""
        if isinstance(self.noise, InverseBandedGaussian):
            return self._decoded(ws)
        c = getattr(self.noise, "coefficients", (1.0,))
        if self.bands is None:
            buffers = self.noise.decays, self.noise.weights
            c = encoded(*buffers, np.eye(1, len(ws))[0]).tolist()
        return [sum(c[k] * ws[t - k] for k in range(min(len(c), t + 1))) for t in range(len(ws))]

    def _decoded(self, rows):
        noise, drawn = self.noise, []
        norms = column_norms(noise.taken, noise.horizon) if noise.normalised else np.ones(len(rows))
        for row, norm in zip(rows, norms, strict=False):
            before = zip(noise.taken, reversed(drawn), strict=False)
            drawn.append(row / norm + sum(share * draw for share, draw in before))
        return drawn

    def spread(self, multiplier):
        """The standard deviation of the law that the ledger hears of, over the sensitivity."""
        mechanism = self.mechanism(multiplier)
        law = mechanism.noise if isinstance(mechanism, CoordinateMechanism) else "gaussian"
        of_scale = {"gaussian": 1.0, "logistic": math.pi / math.sqrt(3), "laplace": math.sqrt(2)}
        return of_scale[law] * mechanism.noise_multiplier


class Held:
    """A clip that answers do not move, and which notes them."""

    def __init__(self, clip):
        self._clip, self.answers = clip, []

    def __getattr__(self, name):
        return getattr(self._clip, name)

    def at_noise(self, noise_multiplier):
        return self

    def updated(self, counts, expected_batch_size):
        self.answers.append(counts)
        return self

    def carried(self, total):
        return self


@dataclasses.dataclass(frozen=True)
class HeldGradient(Gradient):
    """A gradient that answers do not move."""

    base: Gradient

    def __call__(self, engine, batch, clip, released):
        return self.base(engine, batch, clip, released)


def holding(method: Method, answers: list) -> Method:
    """The method in a state that was reached by some answers, and that later ones do not move."""
    gradient, clip = method.gradient, method.clip
    if clip.query:
        for answer in answers:
            counts = torch.tensor(answer[: _counts_of(method)], dtype=torch.float64)
            clip = clip.updated(counts, EXPECTED)
            gradient = gradient.advance(torch.zeros(0), counts / EXPECTED)
    return dataclasses.replace(method, gradient=HeldGradient(gradient), clip=Held(clip))


def _counts_of(method: Method) -> int:
    """The number of counts that a method asks for."""
    if duals := getattr(method.gradient, "duals", None):
        return duals.cells * duals.classes
    if (shares := method.clip.group_shares) is not None:
        return 2 * len(shares)  # of losses and numbers, which the gradient counts
    nobody = SimpleNamespace(norms=torch.zeros(0), layer_norms=torch.zeros(0, 2))
    return len(method.clip.counts(method.clip.norms(nobody), torch.zeros(0, dtype=torch.long)))


def listening(method: Method, **changes) -> Method:
    return dataclasses.replace(method, noise=Heard(method.noise), **changes)
