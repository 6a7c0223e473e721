"""Small things to look at: a training split, steps on it, and losses whose expansion is exact."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch, Split
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.diagnostics.excess_risk import Expansion
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.gradient import Gradient
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import seeded
from dpbench.step.methods.bam import bam, bam_exact
from dpbench.step.methods.clipping_errors import direction_error, magnitude_error
from dpbench.step.methods.dpsat import dpsat
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.dpsgd_global import dpsgd_global, dpsgd_global_adapt
from dpbench.step.methods.fairlens import fairlens
from dpbench.step.methods.sgd import sgd
from tests.problems import Made, problem

FEATURES, CLASSES = 4, 2
GROUPS = [0, 1] * 12 + [0] * 6


@dataclass(frozen=True)
class Drawing(Gradient):
    """A gradient that draws from torch's own generator, as augmentation does."""

    def __call__(self, engine, batch, clip, released):
        torch.rand(1)
        return engine(batch)


METHODS = {
    "sgd": sgd(),
    "dpsgd": dpsgd(0.3, "corrected"),
    "dpsgd_global": dpsgd_global(0.3, 1.0, "corrected"),
    "dpsgd_global_adapt": dpsgd_global_adapt(0.3, 1.0, 1.0, 0.1, 2.0, "corrected"),
    "dpsgd_f": dpsgd_f(0.3, 2.0, "corrected"),
    "fairlens": fairlens(0.3, 1.0, 1.0, "corrected"),
    "magnitude_error": magnitude_error(0.3),
    "direction_error": direction_error(0.3),
    "dpsat": dpsat(0.3, 0.3),
    "bam": bam(0.3, 0.3),
    "bam_exact": bam_exact(0.3, 0.3),
    "drawing": replace(dpsgd(0.3, "corrected"), gradient=Drawing()),
}


@pytest.fixture(params=METHODS)
def method_name(request):
    """Every method of the suite, and one that draws, by name."""
    return request.param


@pytest.fixture(scope="session")
def small():
    return Small


@pytest.fixture(scope="session")
def quadratic():
    return _quadratic


class Small:
    """A network of a few parameters, and made-up data for it, all in double precision."""

    @staticmethod
    def split(groups: list[int], seed: int = 0) -> Split:
        """Examples of these groups."""
        draw = torch.Generator().manual_seed(seed)
        inputs = torch.randn(len(groups), FEATURES, generator=draw, dtype=torch.float64)
        targets = torch.randint(CLASSES, (len(groups),), generator=draw)
        return Split(inputs, targets, torch.tensor(groups, dtype=torch.int64))

    @staticmethod
    def network(*between: nn.Module) -> nn.Module:
        """Always the same weights."""
        with torch.random.fork_rng():
            torch.manual_seed(1)
            layers = [nn.Linear(FEATURES, 3), nn.Tanh(), *between, nn.Linear(3, CLASSES)]
            return nn.Sequential(*layers).double()

    @classmethod
    def engine(cls, model: nn.Module):
        probe = cls.split([0, 0], seed=9)
        return make_engine(
            "auto", model, cross_entropy, Batch(probe.inputs, probe.targets, probe.groups)
        )

    @classmethod
    def step(cls, method, model: nn.Module, lr: float = 0.5, physical: int | None = None):
        engine = cls.engine(model)
        return PrivateStep(
            engine=engine,
            method=method,
            optimizer=torch.optim.SGD([engine.parameters.theta], lr=lr),
            noise_multiplier=1.0,
            expected_batch_size=8.0,
            physical=PhysicalBatches(physical),
            noise_stream=seeded("tests", 2, "", torch.device("cpu")),
            count_stream=seeded("tests", 3, "", torch.device("cpu")),
        )

    @staticmethod
    def method(name: str, split: Split) -> Method:
        """One of METHODS, for the groups of a split."""
        method = METHODS[name]
        of = problem(Made(tuple("abc"[: int(split.groups.max()) + 1])))
        return replace(method, clip=method.clip.bind(of))

    @staticmethod
    def batches(split: Split, count: int = 6) -> Iterator[Batch]:
        """Always the same Poisson batches."""
        draw = torch.Generator().manual_seed(5)
        for _ in range(count):
            yield split.at((torch.rand(len(split), generator=draw) < 0.3).nonzero()[:, 0])

    @classmethod
    def assert_undisturbed(cls, diagnostics, name: str, physical: int | None) -> None:
        """A run has the same states with and without the diagnostics, to the last bit."""
        split = cls.split(GROUPS)

        def states(observed: bool) -> Iterator[list[Tensor]]:
            torch.manual_seed(11)
            model = cls.network(nn.Dropout(0.5), nn.Dropout(0.5))
            step = cls.step(cls.method(name, split), model, physical=physical)
            model[2].eval()  # a mode of its own, which has to survive too
            observer = diagnostics.observer(step, split) if observed else None
            for batch in cls.batches(split):
                if observer:
                    observer.before(batch)
                yield _state(step)
                step(batch)
            yield _state(step)

        for one, other in zip(states(observed=False), list(states(observed=True)), strict=True):
            assert all(a.equal(b) for a, b in zip(one, other, strict=True))

    @staticmethod
    def expand(engine, split: Split, group: int) -> tuple[Tensor, Tensor]:
        """Gradient and Hessian of a group's mean loss, all examples and entries at once."""
        mask = split.groups == group

        def loss(theta):
            named = engine.parameters.unflatten(theta)
            outputs = torch.func.functional_call(engine.model, named, (split.inputs[mask],))
            return cross_entropy(outputs, split.targets[mask]).mean()

        theta, gradient = engine.parameters.theta.detach(), torch.func.grad(loss)
        return gradient(theta), torch.func.jacrev(gradient)(theta)


def _state(step: PrivateStep) -> list[Tensor]:
    """All that a run is made of, besides its data."""
    theta = step.engine.parameters.theta
    bounds = [getattr(step.clip, n, None) for n in ("strict_bound", "bounds")]
    return [
        theta.detach().clone(),
        torch.zeros(0) if theta.grad is None else theta.grad.clone(),
        *(b.clone() for b in bounds if isinstance(b, Tensor)),
        torch.tensor(step.noise_stream.state_dict()["drawn"]),
        torch.tensor(step.count_stream.state_dict()["drawn"]),
        torch.get_rng_state(),
        torch.tensor([m.training for m in step.engine.model.modules()]),
    ]


class Quadratic(NamedTuple):
    """Losses <gradient_k, v> + v^T hessian_k v / 2 of a move by v, and a step's two gradients."""

    gradients: Tensor  # [K, D]
    hessians: Tensor  # [K, D, D]
    plain: Tensor  # [D]
    clipped: Tensor  # [D]
    learning_rate: float

    def losses(self, direction: Tensor) -> Tensor:
        """Losses [K] after a step along a direction [D]."""
        v = -self.learning_rate * direction
        return self.gradients @ v + self._bend(v) / 2

    def _bend(self, v: Tensor) -> Tensor:
        return torch.einsum("i,kij,j->k", v, self.hessians, v)

    @property
    def expansion(self) -> Expansion:
        return Expansion(
            self.learning_rate,
            self.plain.norm(),
            self.clipped.norm(),
            self.gradients.norm(dim=1),
            self.gradients @ self.plain,
            self.gradients @ self.clipped,
            self._bend(self.plain),
            self._bend(self.clipped),
        )


def _quadratic(seed: int, convex: bool, groups: int = 2) -> Quadratic:
    """Any such losses; convex ones come with a learning rate up to 1/largest eigenvalue."""
    draw = torch.Generator().manual_seed(seed)
    size = 1 + seed % 5

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    roots = normal(groups, size, size)
    hessians = roots @ roots.mT if convex else roots + roots.mT
    largest = torch.linalg.eigvalsh(hessians).max().item() if convex else 1.0
    share = torch.rand((), generator=draw).item()
    scale = 10 ** normal(2).clamp(-1, 1)  # of the groups' gradients, and of the clipped one
    return Quadratic(
        normal(groups, size) * scale[0],
        hessians,
        normal(size),
        normal(size) * scale[1],
        share / largest,
    )
