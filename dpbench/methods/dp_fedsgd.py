"""Federated SGD: each user sends one clipped, weighted gradient; the guarantee is per user."""

from dataclasses import dataclass

from dpbench.clipping import Bounds, Clip, make_clip
from dpbench.data.dataset import Batch
from dpbench.gradients import Engine, Gradients
from dpbench.mechanism.federated import federated_method
from dpbench.mechanism.local_batches import local_batches
from dpbench.mechanism.method import Gradient, Method, ReleasedState, plain
from dpbench.system.validate import integer


def dp_fedsgd(
    bound: Bounds,
    cap: float | None,
    clip: str = "abadi",
    style: str = "flat",
    variant: str = "corrected",
    local_batch_size: int | None = None,
) -> Method:
    """The gradient of each user's mean loss (McMahan et al. 2018; Bu et al. 2023, Algorithm 4).

    cap: users are weighted by min(examples/cap, 1); None for equal weights. bound, clip and style
    as for `dpsgd`. variant: as published, users are weighted by their number of examples, without a
    cap. local_batch_size: B of Algorithm 4, see `LocalBatch`; None for all of a user's examples.
    """
    seam: Gradient = plain
    if local_batch_size is not None:
        seam = LocalBatch(integer("method.local_batch_size", local_batch_size))
    return federated_method("dp_fedsgd", seam, cap, make_clip(clip, style, bound), variant)


@dataclass(frozen=True)
class LocalBatch:
    """The gradient of each user's mean loss over a local batch, drawn afresh in every step.

    Before clipping it is an unbiased estimate of the gradient over all of the user's examples.

    Privacy: fix the local batches of all users and steps. A user's gradient is then a function of
    their examples and of earlier releases, clipped to R, so the sum has sensitivity R, and the
    account is that of full local data; the draws do not amplify user-level privacy. As they follow
    from a user's number, and one user less may renumber others, they have to be secret.
    """

    size: int

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        return engine(
            local_batches(batch.as_users(), self.size, released.seed, released.steps_done)
        )
