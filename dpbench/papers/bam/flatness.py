"""Lemma 3 of Knolle et al. (bam) and what they conclude of it, on a small network.

L_Z = L + lambda |mean g_i| (Equation 15) and L_BAO = L + lambda mean |g_i| (Equation 9, over all
examples). By the triangle inequality L_BAO >= L_Z everywhere. That minimising L_BAO therefore leads
to a flat minimum, as the paper has it, does not follow: |mean g_i| is 0 at every minimum of L, flat
or sharp. So it is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev

from dpbench.config.buildable import check_settings, settings_of
from dpbench.data.dataset import Batch
from dpbench.execution.prepare import build, data_folder
from dpbench.gradients.engine import Stacked
from dpbench.gradients.penalised import penalised
from dpbench.gradients.vmap import Vmap
from dpbench.papers.calibration.kernel import Network
from dpbench.papers.calibration.laboratory import in_float64, initial_network
from dpbench.papers.calibration.properties import TOLERANCE
from dpbench.papers.calibration.scale import own_scale
from dpbench.reproduce.target import Target
from dpbench.tables.grid import Grid
from dpbench.tables.markdown import grid_lines
from dpbench.training.plan import Run
from dpbench.training.progress import counting
from dpbench.validate import integer, positive

PLAIN, AWARE = "L", "L_BAO"
HEAD = ("minimised", "seed", "loss", "|mean g|", "mean |g|", "largest eigenvalue", "least gap")


@dataclass(frozen=True)
class Setup:
    """What is measured. weight: lambda; lr, steps: of full-batch descent in float64."""

    examples: int
    lr: float
    steps: int
    weight: float

    def __post_init__(self) -> None:
        for name in ("examples", "steps"):
            integer(f"table.compute.{name}", getattr(self, name))
        for name in ("lr", "weight"):
            positive(f"table.compute.{name}", getattr(self, name))


@dataclass(frozen=True)
class Descended:
    """Where a descent has led from one seed.

    loss: L. short: |mean g_i|. long: mean |g_i|. sharpness: the largest eigenvalue of the Hessian
    of L. gap: the least (L_BAO - L_Z) / L_BAO on the way.
    """

    minimised: str
    seed: int
    loss: float
    short: float
    long: float
    sharpness: float
    gap: float


def flatness(wanted: Target) -> dict[str, bytes]:
    """The files of the target by suffix; nothing is trained privately."""
    plain: dict[str, Any] = settings_of(wanted.table["compute"])
    check_settings(Setup, plain, "table.compute.")
    setup = Setup(**plain)
    run, folder = build(wanted.config), data_folder(wanted.config)
    found = []
    seeds = wanted.table["seeds"]
    with counting("descents", 2 * len(seeds)) as count:
        for seed in seeds:
            for minimised in (PLAIN, AWARE):
                found.append(descended(run, setup, minimised, folder, seed))
                count()
    return _files(wanted, setup, found)


def descended(run: Run, setup: Setup, minimised: str, folder: Path, seed: int) -> Descended:
    """Descend one of the two objectives from the seed's initial weights."""
    batch = in_float64(run, folder, seed, setup.examples)
    network = initial_network(run, seed, setup.examples)
    engine = Vmap(network.model, network.loss, network.parameters)
    theta, gap = network.parameters.theta.data, float("inf")
    for _ in range(setup.steps):
        gradients = network.gradients(batch)
        gap = min(gap, gap_of(gradients, setup.weight))
        of = gradients if minimised == PLAIN else penalised(engine, batch, setup.weight)
        theta -= setup.lr * of.stack().mean(0)
    gradients = network.gradients(batch)
    short, long = _lengths(gradients)
    loss, sharpness = gradients.losses.mean().item(), sharpness_of(network, batch)
    return Descended(minimised, seed, loss, short, long, sharpness, gap)


def gap_of(gradients: Stacked, weight: float) -> float:
    """(L_BAO - L_Z) / L_BAO; Lemma 3 says that it is nowhere below 0."""
    short, long = _lengths(gradients)
    return weight * (long - short) / (gradients.losses.mean().item() + weight * long)


def _lengths(gradients: Stacked) -> tuple[float, float]:
    """|mean g_i| and mean |g_i|."""
    return gradients.stack().mean(0).norm().item(), gradients.norms.mean().item()


def sharpness_of(network: Network, batch: Batch) -> float:
    """The largest eigenvalue of the Hessian of the mean loss."""
    parameters = network.parameters

    def loss(theta: Tensor) -> Tensor:
        outputs = functional_call(network.model, parameters.unflatten(theta), (batch.inputs,))
        return network.loss(outputs, batch.targets).mean()

    return torch.linalg.eigvalsh(jacrev(grad(loss))(parameters.theta.detach()))[-1].item()


def verdicts(found: Sequence[Descended]) -> tuple[str, str]:
    """Of the lemma, and of the flat minimum: it holds where no seed has a sharper one."""
    gap = min(one.gap for one in found)
    of_seed: dict[int, dict[str, float]] = {}
    for one in found:
        of_seed.setdefault(one.seed, {})[one.minimised] = one.sharpness
    sharper = sum(pair[AWARE] >= pair[PLAIN] for pair in of_seed.values())
    return (
        "holds" if gap >= -TOLERANCE else "fails",
        f"fails in {sharper} of {len(of_seed)} seeds" if sharper else "holds",
    )


def _files(wanted: Target, setup: Setup, found: Sequence[Descended]) -> dict[str, bytes]:
    lemma, flat = verdicts(found)
    lines = tuple(
        (one.minimised, str(one.seed), *(f"{x:.4g}" for x in _numbers(one))) for one in found
    )
    parts = [
        f"# {wanted.title}",
        f"{wanted.table['paper']}. {own_scale(wanted)}, on {setup.examples} examples of "
        f"{wanted.config['choices']['dataset']}; seeds: {wanted.table['seeds']}; {setup.steps} "
        f"steps of {setup.lr:g}; lambda: {setup.weight:g}.",
        f"- Lemma 3, L_BAO is an upper bound of L_Z: {lemma}.\n"
        f"- Minimising L_BAO leads to a flatter minimum (Appendix B): {flat}.",
        grid_lines(Grid("", HEAD, lines)),
        "\n".join(f"- {note}" for note in wanted.table["notes"]),
    ]
    csv = "".join(",".join(f'"{text}"' for text in line) + "\n" for line in (HEAD, *lines))
    return {"md": ("\n\n".join(parts) + "\n").encode(), "csv": csv.encode()}


def _numbers(one: Descended) -> tuple[float, ...]:
    return one.loss, one.short, one.long, one.sharpness, one.gap
