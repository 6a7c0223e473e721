"""jax_privacy on canaries, by its own plan of DP-SGD: sampler, clip, noise and privacy event."""

import copy
from collections.abc import Iterator
from importlib.metadata import version

import numpy as np
import torch

from dpbench.audit.peers.peer import PeerTask, StepRelease

PIECE = 32
"""Examples per piece of a batch; the last piece is padded, even the only one of an empty batch."""


class JaxPrivacy:
    """The plan of `BandMFExecutionPlanConfig` with one band, which is DP-SGD; its accountant takes
    neighbours to differ by adding or removing an example."""

    accountant = "its PLD"

    def __init__(self, task: PeerTask):
        import jax
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import PLDAccountant
        from jax_privacy.batch_selection import PartitionType
        from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

        self.library = f"jax_privacy {version('jax_privacy')}"
        self._task = task
        config = BandMFExecutionPlanConfig(
            strategy=np.ones(1),
            iterations=task.steps,
            epsilon=None,
            delta=None,
            noise_multiplier=task.noise_multiplier,
            sampling_prob=task.rate,
            partition_type=PartitionType.INDEPENDENT,
            accountant=PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE),
            noise_seed=task.seed,
        )
        self._accountant, self._plan = config.accountant, config.plan
        clipped = self._plan.clipped_grad(_loss, batch_argnums=(1, 2))
        noise = self._plan.noise_addition_transform

        self._clipped, self._noisy, self._init = jax.jit(clipped), jax.jit(noise.update), noise.init

    def steps(self) -> Iterator[StepRelease]:
        from jax_privacy.batch_selection import split_and_pad_global_batch

        weights = np.zeros(self._task.size, np.float32)
        state = self._init(weights)
        sampler, number = self._plan.batch_selection_strategy, len(self._task.numbers)
        for batch in sampler.batch_iterator(number, self._task.seed):
            pieces = split_and_pad_global_batch(batch, PIECE)
            total = sum(self._clipped_sum(weights, piece) for piece in pieces)
            noisy, state = self._noisy(total, state)
            yield StepRelease(torch.from_numpy(np.array(noisy)).double())

    def _clipped_sum(self, weights, piece):
        """The clipped sum over the examples with these indices; -1 is padding."""
        numbers, targets = (t.numpy()[piece] for t in (self._task.numbers, self._task.targets))
        return self._clipped(weights, numbers, targets, is_padding_example=piece == -1)

    def history(self) -> list[tuple[float, float, int]]:
        return [(self._task.noise_multiplier, self._task.rate, self._task.steps)]

    def epsilon(self, delta: float) -> float:
        accountant = copy.deepcopy(self._accountant)
        return float(accountant.compose(self._plan.dp_event).get_epsilon(delta))


def _loss(weights, numbers, targets):
    """The squared error of one example; numbers, targets [1]."""
    return ((weights[numbers] - targets) ** 2).sum()
