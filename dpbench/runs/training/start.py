"""The start of a run: its device, its private step, its training before the first step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn, optim

from dpbench.learning.data.dataset import lengths_of
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.probe import probe, probe_users
from dpbench.learning.models.architecture import LOSSES, ClassWeighted, check_outputs
from dpbench.runs.config.settings import no_device
from dpbench.runs.training.class_weights import balanced, noisy_counts
from dpbench.runs.training.loop import Batches, MovingAverage, Training
from dpbench.runs.training.plan import Plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.run import Run
from dpbench.runs.training.statistics import ChannelNormalization
from dpbench.step.gradients import ForwardOptions, Loss, make_engine
from dpbench.step.gradients.parameters import Parameters
from dpbench.step.gradients.precision import Precision
from dpbench.step.gradients.products import Products
from dpbench.step.mechanism.dry_run import check_method, fit_memory
from dpbench.step.mechanism.graph_step import GraphStep
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system import seeds
from dpbench.system.errors import UserError


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        probe = torch.zeros(1, device=name)
        probe.item()  # fails on `meta` and similar devices
        return probe.device
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        raise UserError(no_device(name)) from error


def private_step(
    run: Run, planned: Plan, device: torch.device, loss: Loss | None = None
) -> PrivateStep:
    """The private step of a run, its model freshly initialised from the run's seed. loss: by
    default that of the model, if it has one, or of the task."""
    views = run.augmentation.views if run.augmentation else 1
    probed = probe(run.dataset, views)
    if run.users:
        probed = probe_users(run.dataset, max(planned.units.sizes))
    probe_batch = probed.each(lambda t: t.to(device))
    loss = loss or getattr(run.model, "loss", None) or LOSSES[run.dataset.task]
    physical = run.physical_batch_size
    options = ForwardOptions(Precision(run.precision), run.channels_last, Products(run.sums))
    model = run.initial_model(device)
    example = probe(run.dataset, 1).inputs.to(device)
    squashed = getattr(run.model, "squashed", False)  # as a paper's code has it
    check_outputs(model, example, run.dataset.classes, squashed)
    engine = make_engine(run.engine, model, loss, probe_batch, views, options)
    step = (GraphStep if run.graph else PrivateStep)(
        engine=engine,
        method=planned.method,
        optimizer=_optimizer(run, engine.parameters),
        noise_multiplier=planned.noise_multiplier,
        expected_batch_size=planned.sampler.expected_batch_size,
        physical=PhysicalBatches(
            physical if isinstance(physical, int) else None, lengths=lengths_of(run.dataset)
        ),
        steps=planned.steps,
        schedule=planned.schedule,
        seed=run.draws_seed(),
        noise_stream=run.stream("noise", device),
        count_stream=run.stream("counts", device),
    )
    check_method(step, probe_batch)
    if physical == "auto" and not planned.method.whole_batches:
        fit_memory(step, probe_batch)
    return step


def _optimizer(run: Run, parameters: Parameters) -> torch.optim.Optimizer:
    optimizer = run.optimizer([parameters.theta])
    if run.head_lr_factor is not None:
        scale_head(optimizer, parameters.theta, parameters.layers[-1].at, run.head_lr_factor)
    return optimizer


def start_training(run: Run, planned: Plan, data: Data, usage: ResourceUsage) -> Training:
    """The training of a run before its first step, on the device of its training set."""
    examples = data.train
    weighted = _weighted_loss(run, examples)
    step = private_step(run, planned, examples.device, weighted)
    theta = step.engine.parameters.theta
    observer = run.diagnostics.observer(step, examples, data.test) if run.diagnostics else None
    train = run.users.of(examples, run.seed) if run.users else examples
    constants = examples.normalize
    thins = step.clip.sensitivity.share < 1
    return Training(
        plan=planned,
        step=step,
        batches=Batches(
            planned.sampler,
            train,
            run.augmentation,
            run.stream("batches"),
            seeds.generator(step.seed, "augmentation", examples.device),
            lambda: step.clip.group_shares if thins else None,
        ),
        observer=observer,
        average=None if run.ema_decay is None else MovingAverage(run.ema_decay, theta),
        usage=usage,
        statistics=constants if isinstance(constants, ChannelNormalization) else None,
        weighted=weighted,
    )


def scale_head(optimizer: optim.Optimizer, theta: nn.Parameter, head: slice, factor: float) -> None:
    """Multiply what each step of the optimiser adds to the entries `head` of theta [D].

    Steps are proportional to the learning rate, weight decay included, so this is the parameter
    group that a head has elsewhere; all parameters are one vector here, which has no groups.
    """
    before = theta.detach()[head].clone()

    def remember(*_: object) -> None:
        before.copy_(theta.detach()[head])

    def scale(*_: object) -> None:
        theta.data[head] = before + factor * (theta.data[head] - before)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(scale)


def _weighted_loss(run: Run, examples: Split) -> ClassWeighted | None:
    weights: Tensor | Sequence[float] | None = run.class_weights
    if (multiplier := run.class_count_noise_multiplier) is not None:
        stream = run.stream("class sizes")
        counts = noisy_counts(examples, run.dataset.classes, multiplier, stream)
        weights = balanced(counts, multiplier)
    return None if weights is None else ClassWeighted(torch.as_tensor(weights, dtype=torch.float64))
