"""The configured engine, or the best one for a model, checked against the reference."""

import warnings

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.modes import in_mode
from dpbench.step.gradients.agreement import disagreement
from dpbench.step.gradients.coupling import crowd, refuse_coupling
from dpbench.step.gradients.engine import Engine, EngineFallback, Loss
from dpbench.step.gradients.flatten import flatten
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.modules import Unsupported
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Parameters
from dpbench.step.gradients.vmap import Vmap
from dpbench.system.errors import UserError, first_line
from dpbench.system.memory import is_out_of_memory
from dpbench.system.seeds import torch_state_kept
from dpbench.system.validate import one_of

ENGINES: dict[str, type[Ghost | Loop | Vmap]] = {"ghost": Ghost, "loop": Loop, "vmap": Vmap}

DEFAULT_OPTIONS = ForwardOptions()


def make_engine(
    name: str,
    model: nn.Module,
    loss: Loss,
    probe: Batch,
    views: int = 1,
    options: ForwardOptions = DEFAULT_OPTIONS,
) -> Engine:
    """The engine of that name for a model, checked on a probe of synthetic examples.

    `auto` is `ghost` if the model supports it, else `vmap`. An explicit `ghost` warns if it falls
    back: to materialised gradients of single modules, or to `vmap` for the whole model. `ghost`
    also warns when it begins to compute examples one by one.
    probe: at least two synthetic examples, on which the engine must agree with the reference, in
    float32. views: augmented copies per example (inputs [B, K, ...]). options: precision and memory
    format of all later passes.

    Raises UserError for an unknown name, for models that mix or remember examples (see
    `dpbench.gradients.coupling`), for parameters that are not float32 or float64, and for options
    that the model does not support.
    """
    engine = _checked_engine(name, model, loss, probe, views)
    if options == DEFAULT_OPTIONS:
        return engine
    if options.products.short and not isinstance(engine, Ghost):
        raise UserError(
            f"sums={options.products.name} is of products of inputs and adjoints, and "
            f"engine={engine.name} takes none; use engine=ghost or sums=float32."
        )
    chosen = (
        f"precision={options.precision.name} channels_last={str(options.channels_last).lower()}"
    )
    if isinstance(engine, Loop):
        raise UserError(
            f"engine=loop is the float64 reference and does not support {chosen}; use engine=ghost."
        )
    engine.options = options
    try:
        with torch_state_kept(probe.targets.device):
            engine(probe)
    except RuntimeError as error:
        raise UserError(
            f"{chosen} fails with engine={engine.name} and this model: {_first_line(error)}"
        ) from error
    return engine


def _checked_engine(
    name: str, model: nn.Module, loss: Loss, probe: Batch, views: int
) -> Ghost | Loop | Vmap:
    """The engine, checked; see `make_engine`."""
    one_of("engine", name, [*ENGINES, "auto"])
    _refuse_compiled(model)
    _refuse_parameters(model)
    _refuse_kept_results(model)
    _refuse_mixing(model)
    parameters = Parameters(model)
    reference = Loop(model, loss, parameters, views)
    try:
        refuse_coupling(reference, probe)
    except RuntimeError as failure:
        _pass_as_it_is(model, flatten(probe, views, parameters.theta.detach()).rows.inputs)
        raise UserError(
            "the model fails in float64, in which its gradients are checked on synthetic examples "
            f"({_first_line(failure)}); let it compute in the type of its inputs and parameters."
        ) from failure
    if name == "loop":
        return reference
    reason = ""
    if name in ("auto", "ghost"):
        try:
            engine = _ghost(reference, probe)
            engine.warn_once()
            if name == "ghost" and engine.fallbacks:
                _warn(f"there is no rule for {', '.join(engine.fallbacks)}; materialising those.")
            return engine
        except Unsupported as error:
            reason = error.reason
            if name == "ghost":
                _warn(f"it cannot be used here, because {reason}; using vmap.")
    return _vmap(reference, probe, reason)


def _pass_as_it_is(model: nn.Module, inputs: Tensor) -> None:
    """A pass in each mode, in the precision of the parameters; raises whatever the model raises."""
    for training in (False, True):
        with torch_state_kept(inputs.device), torch.no_grad(), in_mode(model, training):
            model(inputs)


def _ghost(reference: Loop, probe: Batch) -> Ghost:
    engine = Ghost(reference.model, reference.loss, reference.parameters, reference.views)
    try:
        engine.check(crowd(probe))
        error = disagreement(engine, reference, probe)
    except RuntimeError as failure:
        raise Unsupported(_first_line(failure)) from failure
    if error is not None:
        raise Unsupported(f"it disagrees with the reference by {error:.1e} of the gradient's norm")
    return engine


def _vmap(reference: Loop, probe: Batch, reason: str) -> Vmap:
    """The vmap engine, with the reason why it is used instead of `ghost`, if it is; raises
    UserError if it cannot be used."""
    engine = Vmap(reference.model, reference.loss, reference.parameters, reference.views)
    engine.reason = reason
    try:
        error = disagreement(engine, reference, probe)
    except (RuntimeError, KeyError) as failure:  # which torch raises for torch.cond
        raise UserError(
            "engine=vmap cannot be used with this model, because torch cannot vectorise it "
            f"({_first_line(failure)}); use engine=loop, which is slow, or other layers."
        ) from failure
    if error is not None:
        raise UserError(
            f"engine=vmap cannot be used with this model: it disagrees with the reference by "
            f"{error:.1e} of the gradient's norm; use engine=loop."
        )
    return engine


def _first_line(failure: RuntimeError | KeyError) -> str:
    """The first line of torch's message; re-raises the failure if memory ran out."""
    if is_out_of_memory(failure):
        raise failure
    return first_line(failure, type(failure).__name__)


def _warn(what: str) -> None:
    warnings.warn(f"engine=ghost: {what}", EngineFallback, stacklevel=3)


def _refuse_mixing(model: nn.Module) -> None:
    with in_mode(model, training=True):
        trained = [(name, module) for name, module in model.named_modules() if module.training]
    for name, module in trained:
        running = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if running or isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"{name} ({type(module).__name__}) mixes the examples of a batch, so an example's "
                "gradient depends on the others; use GroupNorm or LayerNorm instead "
                "(dpbench.models.batch_norm.with_group_norm), or keep pre-trained statistics as "
                "they are (freeze_batch_norm there)."
            )


def _refuse_compiled(model: nn.Module) -> None:
    """UserError for a model with a compiled part, whose operations cannot be followed."""
    for name, module in model.named_modules():
        compiled = type(module).__name__ == "OptimizedModule"  # imported with torch's compiler
        if compiled or getattr(module, "_compiled_call_impl", None) is not None:
            raise UserError(
                f"{name or 'the model'} is compiled by torch.compile, and an example's gradient "
                "cannot be taken from a compiled pass over many: return it as it was before."
            )


def _refuse_kept_results(model: nn.Module) -> None:
    """UserError for modules that keep a tensor computed from parameters outside a forward pass."""
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                raise UserError(
                    f"{name}.{key} ({type(module).__name__}) is kept from one pass to the next, "
                    "as by torch.nn.utils.weight_norm and prune: use "
                    "torch.nn.utils.parametrizations, or prune.remove after pruning."
                )


def _refuse_parameters(model: nn.Module) -> None:
    kinds: dict[torch.dtype, str] = {}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UserError(
                f"{name} has no shape yet, as lazy modules get theirs from a first batch: pass one "
                "through the model before, or give the layer its sizes."
            )
        if parameter.requires_grad:
            kinds.setdefault(parameter.dtype, name)
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
            raise UserError(
                f"{name} is {_named(parameter.dtype)}, and gradients are clipped and noised as "
                "float32 or float64; store a complex parameter as its real and imaginary parts "
                "(torch.view_as_real), and a half-precision one as float32 (use precision=bf16 for "
                "the passes)."
            )
    if len(kinds) > 1:
        (one, first), (other, second), *_ = kinds.items()
        raise UserError(
            f"{first} is {_named(one)} and {second} is {_named(other)}: a step moves all "
            "parameters as one vector of one type, so store them as float32 (model.float())."
        )


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
