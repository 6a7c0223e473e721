"""Per-example gradients: three engines that agree, and the choice between them."""

import warnings
from typing import TypeVar

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Batch
from dpbench.errors import UserError
from dpbench.gradients.engine import Engine, Gradients, Loss, Own, Shift
from dpbench.gradients.ghost import Ghost
from dpbench.gradients.how import How
from dpbench.gradients.loop import Loop
from dpbench.gradients.parameters import Layer, Parameters
from dpbench.gradients.shown import shown
from dpbench.gradients.units import Unsupported
from dpbench.gradients.vmap import Vmap
from dpbench.validate import one_of

__all__ = [
    "Engine",
    "Gradients",
    "How",
    "Layer",
    "Loss",
    "Own",
    "Parameters",
    "Shift",
    "make_engine",
]

E = TypeVar("E", bound=Engine)

ENGINES: dict[str, type[Ghost | Loop | Vmap]] = {"ghost": Ghost, "loop": Loop, "vmap": Vmap}


AS_USUAL = How()


class EngineFallback(UserWarning):
    """Book-keeping was asked for, and something is materialised instead."""


def make_engine(
    name: str, model: nn.Module, loss: Loss, probe: Batch, views: int = 1, how: How = AS_USUAL
) -> Engine:
    """The engine of that name for a model, checked on a probe of made-up examples.

    `auto` is `ghost` where it can be and `vmap` elsewhere. Asking for `ghost` itself warns where it
    falls back: of single modules that are then materialised, or to `vmap` for the whole model. The
    probe (two examples or more, never from the data) is how it is found that an engine and the
    reference disagree, in float32. views: augmented copies per example (inputs [B, K, ...]). how:
    passes are carried out from then on.

    Raises UserError for an unknown name, for models whose layers mix the examples of a batch, and
    where passes cannot be carried out like that.
    """
    engine = _made(name, model, loss, probe, views)
    if how == AS_USUAL:
        return engine
    asked = f"precision={how.precision.name} channels_last={str(how.channels_last).lower()}"
    if isinstance(engine, Loop):
        raise UserError(f"engine=loop is the float64 reference and knows no {asked}; use ghost.")
    engine.how = how
    try:
        with torch.random.fork_rng():
            engine(probe)
    except RuntimeError as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{asked} fails with engine={engine.name} and this model: {why}") from error
    return engine


def _made(name: str, model: nn.Module, loss: Loss, probe: Batch, views: int) -> Ghost | Loop | Vmap:
    """The engine, checked; see `make_engine`."""
    one_of("engine", name, [*ENGINES, "auto"])
    _refuse_mixing(model)
    parameters = Parameters(model)
    if name in ("auto", "ghost"):
        try:
            engine = _checked(Ghost(model, loss, parameters, views), probe)
            if name == "ghost" and engine.fallbacks:
                _say(f"there is no rule for {', '.join(engine.fallbacks)}; materialising those.")
            return engine
        except Unsupported as reason:
            if name == "ghost":
                _say(f"it cannot be used here, because {reason}; using vmap.")
            name = "vmap"
    return _checked(ENGINES[name](model, loss, parameters, views), probe)


def _say(what: str) -> None:
    warnings.warn(f"engine=ghost: {what}", EngineFallback, stacklevel=3)


def _refuse_mixing(model: nn.Module) -> None:
    for name, module in model.named_modules():
        running = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if running or isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"{name} ({type(module).__name__}) mixes the examples of a batch, so one example's "
                "gradient is not its own; use GroupNorm or LayerNorm instead."
            )


def _checked(engine: E, probe: Batch) -> E:
    """The engine, if it agrees with the reference on the probe example by example."""
    training = engine.model.training
    engine.model.eval()  # so that dropout cannot make two right engines differ
    try:
        alone = Loop(engine.model, engine.loss, engine.parameters, engine.views)(probe)
        _refuse_coupled(engine, probe, alone.losses)
        ours, reference = engine(probe).stack().double(), alone.stack()
    finally:
        engine.model.train(training)
    scale = torch.linalg.vector_norm(reference, dim=1) + 1e-6
    error = (torch.linalg.vector_norm(ours - reference, dim=1) / scale).max()
    if error > 1e-3:
        reason = f"it disagrees with the reference by {error:.1e} of the gradient's norm"
        if engine.name == "ghost":
            raise Unsupported(reason)
        raise UserError(f"engine={engine.name} cannot be used with this model: {reason}.")
    return engine


def _refuse_coupled(engine: Engine, probe: Batch, alone: Tensor) -> None:
    """Refuse a loss [B] that is another one when the example comes in company."""
    seen = shown(probe, engine.views, engine.parameters.theta.detach())
    inputs = seen.rows.inputs.detach().clone()
    inputs.requires_grad_(inputs.is_floating_point())
    losses = seen.losses(engine.loss(engine.model(inputs), seen.rows.targets))
    coupled = not torch.allclose(losses.double(), alone, rtol=1e-4, atol=1e-5, equal_nan=True)
    if inputs.requires_grad:
        # However small the coupling, the first loss must not feel the other examples' inputs.
        felt = torch.autograd.grad(losses[0], inputs, allow_unused=True, materialize_grads=True)[0]
        coupled |= bool((felt[seen.each :] != 0).any())
    if coupled:
        raise UserError(
            "the loss of one example depends on the others of its batch, so its gradient is not "
            "its own; make each loss depend on its own example."
        )
