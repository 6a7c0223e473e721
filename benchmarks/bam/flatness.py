"""Lemma 3 of Knolle et al. (bam), and the conclusion they draw from it, on a small network.

L_Z = L + lambda |mean g_i| (Equation 15) and L_BAO = L + lambda mean |g_i| (Equation 9, over all
examples). By the triangle inequality L_BAO >= L_Z everywhere. The paper concludes that minimising
L_BAO leads to a flat minimum. That does not follow, since |mean g_i| is 0 at every minimum of L,
flat or sharp; so it is measured here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.learning.data.examples import Batch
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.training.float64 import Network, in_float64, initial_network
from dpbench.runs.training.run import Run
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.gradients.penalised import penalised
from dpbench.system.progress import counting
from dpbench.system.validate import Count, Positive

PLAIN, AWARE = "L", "L_BAO"

TOLERANCE = 1e-10
"""Negative gaps of up to this share of L_BAO count as zero, in float64."""

HEAD = ("minimised", "seed", "loss", "|mean g|", "mean |g|", "largest eigenvalue", "least gap")


@dataclass(frozen=True)
class FlatnessSettings:
    """The settings. weight: lambda; lr, steps: of full-batch gradient descent in float64."""

    examples: Count
    lr: Positive
    steps: Count
    weight: Positive


class DescentResult(NamedTuple):
    """The end of a gradient descent from one seed.

    minimised: the objective, PLAIN or AWARE. loss: L. norm_of_mean: |mean g_i|. mean_norm:
    mean |g_i|. sharpness: the largest eigenvalue of the Hessian of L. gap: the smallest
    (L_BAO - L_Z) / L_BAO of all steps.
    """

    minimised: str
    seed: int
    loss: float
    norm_of_mean: float
    mean_norm: float
    sharpness: float
    gap: float


def flatness(target: Target) -> dict[str, bytes]:
    """The files of the target by suffix; nothing is trained privately."""
    setup = target.computed_by(FlatnessSettings)
    run, folder = run_of(target.config), target.config.data_folder
    results = []
    seeds = target.table.seeds
    with counting("descents", 2 * len(seeds)) as count:
        for seed in seeds:
            for minimised in (PLAIN, AWARE):
                results.append(descend(run, setup, minimised, folder, seed))
                count()
    lemma, flat = verdicts(results)
    lines = [(name, str(seed), *(f"{x:.4g}" for x in rest)) for name, seed, *rest in results]
    grid = Grid("", HEAD, tuple(lines))
    text = target.page(
        f"{target.table.paper}. {target.own_scale}, on {setup.examples} examples of "
        f"{target.config['choices']['dataset']}; seeds: {seeds}; {setup.steps} "
        f"steps of {setup.lr:g}; lambda: {setup.weight:g}.",
        [
            f"Lemma 3, L_BAO is an upper bound of L_Z: {lemma}.",
            f"Minimising L_BAO leads to a flatter minimum (Appendix B): {flat}.",
        ],
        grid,
        target.table.notes,
    )
    return {**text.files, "csv": grid.csv.encode()}


def descend(
    run: Run, setup: FlatnessSettings, minimised: str, folder: Path, seed: int
) -> DescentResult:
    """Minimise one of the two objectives from the seed's initial weights."""
    batch = in_float64(run, folder, seed, setup.examples)
    network = initial_network(run, seed, setup.examples)
    engine = network.gradients
    theta, gap = network.parameters.theta.data, float("inf")
    for _ in range(setup.steps):
        gradients = engine(batch)
        gap = min(gap, gap_of(gradients, setup.weight))
        direction = gradients if minimised == PLAIN else penalised(engine, batch, setup.weight)
        theta -= setup.lr * direction.stack().mean(0)
    gradients = engine(batch)
    norm_of_mean, mean_norm = _norms(gradients)
    loss, sharpness = gradients.losses.mean().item(), sharpness_of(network, batch)
    return DescentResult(minimised, seed, loss, norm_of_mean, mean_norm, sharpness, gap)


def gap_of(gradients: MaterialisedGradients, weight: float) -> float:
    """(L_BAO - L_Z) / L_BAO, which is never negative by Lemma 3."""
    norm_of_mean, mean_norm = _norms(gradients)
    objective = gradients.losses.mean().item() + weight * mean_norm
    return weight * (mean_norm - norm_of_mean) / objective


def _norms(gradients: MaterialisedGradients) -> tuple[float, float]:
    """|mean g_i| and mean |g_i|."""
    return gradients.stack().mean(0).norm().item(), gradients.norms.mean().item()


def sharpness_of(network: Network, batch: Batch) -> float:
    """The largest eigenvalue of the Hessian of the mean loss."""
    parameters = network.parameters

    def loss(theta: Tensor) -> Tensor:
        outputs = functional_call(network.model, parameters.unflatten(theta), (batch.inputs,))
        return network.loss(outputs, batch.targets).mean()

    return torch.linalg.eigvalsh(jacrev(grad(loss))(parameters.theta.detach()))[-1].item()


def verdicts(results: Sequence[DescentResult]) -> tuple[str, str]:
    """Verdicts on the lemma and on flat minima; the latter fails if any is no flatter."""
    gap = min(result.gap for result in results)
    of = {(result.minimised, result.seed): result.sharpness for result in results}
    seeds = {result.seed for result in results}
    sharper = sum(of[AWARE, seed] >= of[PLAIN, seed] for seed in seeds)
    return (
        "holds" if gap >= -TOLERANCE else "fails",
        f"fails in {sharper} of {len(seeds)} seeds" if sharper else "holds",
    )
