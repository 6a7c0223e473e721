"""A learning rate of the head's own, for any optimiser of torch."""

from torch import nn, optim


def scale_head(optimizer: optim.Optimizer, theta: nn.Parameter, head: slice, factor: float) -> None:
    """Multiply what each step of the optimiser adds to the entries `head` of theta [D].

    A step of torch's optimisers is proportional to its learning rate, weight decay included, so
    this is the parameter group that a head has elsewhere, with `factor` times the rate; all
    parameters are one vector here, which has no groups.
    """
    before = theta.detach()[head].clone()

    def remember(*_: object) -> None:
        before.copy_(theta.detach()[head])

    def scale(*_: object) -> None:
        theta.data[head] = before + factor * (theta.data[head] - before)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(scale)
