"""What cannot be trained is refused, and where it can be, before data is read."""

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from dpbench.learning.data.adult import Adult
from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.derive.calibration import WithCalibration
from dpbench.learning.data.derive.fewer import Fewer
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.derive.unbalanced import Unbalanced
from dpbench.learning.data.derive.users import iid
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.probe import probe
from dpbench.learning.models.architecture import check_outputs
from dpbench.learning.models.logistic import Logistic
from dpbench.learning.models.resnet9 import ResNet9
from dpbench.runs.training.plan import plan
from dpbench.runs.training.trainer import fit
from dpbench.step.methods.bam import bam_exact
from dpbench.step.methods.dp_fedavg import dp_fedavg
from dpbench.step.methods.fairlens import fairlens
from dpbench.system import memory
from dpbench.system.errors import UserError
from tests.runs.training.small_runs import NOWHERE, run_of

VIEWS = ShiftsFlips(views=2, shift=2, padding="reflect", flip="horizontal", probability=0.5)


@dataclass(frozen=True)
class Unreadable(Digits):
    """Digits that must not be read."""

    def load(self, folder, seed):
        pytest.fail("data was read")


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": WithCalibration(Digits(0.2), 0.3)},
        {"dataset": WithValidation(Unbalanced(Digits(0.2), 8, 0.2), 0.2)},
        {"dataset": Adult(balance_by_sex=True, test_share=0.2)},
    ],
)
def test_batches_are_not_cut_where_the_number_of_examples_is_drawn(changes):
    """Half of the draws exceed the expected number, and one example would decide on a refusal."""
    run = run_of(sampler="truncated", batch_limit=300, **changes)
    with pytest.raises(UserError, match="sampler=truncated needs the number of training examples"):
        plan(replace(run, model=Logistic(False)))
    plan(replace(run, model=Logistic(False), sampler="poisson", batch_limit=None))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"augmentation": replace(VIEWS, views=0)}, "augmentation.views must be a whole"),
        ({"normalization": Normalization([0.5], [0.0])}, "each of normalization.std must be"),
        ({"model": ResNet9(0, 1, "mish", True, False)}, "model.width must be"),
        ({"dataset": WithCalibration(Fewer(Digits(0.2), 9, 0), 0.3)}, "dataset.base.test must be"),
    ],
)
def test_a_part_made_in_python_has_the_ranges_of_settings(changes, named):
    with pytest.raises(UserError, match=named):
        run_of(**changes)


def test_a_plan_reads_nothing_and_outputs_that_a_paper_squashes_are_not_warned_of():
    planned = plan(run_of(dataset=Unreadable(0.2), epochs=3))
    assert planned.steps == planned.ledger.steps == 36
    assert planned.noise_multiplier == 1.0
    fit(run_of(dataset=Digits(0.2), model=Logistic(squashed=True)), NOWHERE, quiet=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 1439}, "larger than the 1438 training examples"),
        ({"lr": -1.0}, "optimizer cannot be built: Invalid learning rate: -1.0"),
        ({"lr": 1e39}, "optimizer cannot be built"),
        ({"device": "nonsense"}, "device=nonsense is not available here"),
        ({"augmentation": replace(VIEWS, shift=8)}, "shift=8 must be less than the side"),
        ({"ema_decay": 1.0}, "ema_decay must be a number from 0 to below 1"),
    ],
)
def test_impossible_runs_are_refused_before_data_are_read(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        fit(run_of(dataset=Unreadable(0.2), **changes), NOWHERE)


def test_unmeasurable_memory_is_refused_before_data_are_read(monkeypatch):
    monkeypatch.setattr(memory, "resident", lambda _: None)
    run = run_of(dataset=Unreadable(0.2), physical_batch_size="auto", device="cpu")
    with pytest.raises(UserError, match="physical_batch_size=auto cannot measure"):
        fit(run, NOWHERE)


def test_a_method_that_does_not_fit_and_a_model_with_other_outputs_are_refused():
    run = replace(run_of(dataset=Unreadable(0.2)), method=fairlens(0.5, 1.0, 1.0, "corrected"))
    with pytest.raises(UserError, match="exactly 2 groups and digits has 10"):
        fit(run, NOWHERE)
    with pytest.raises(UserError, match=r"outputs for 2 examples are \[2, 2\] .* \[2, 10\]"):
        fit(run_of(model=OfTwo()), NOWHERE)


class OfTwo:
    """Ignores the number of classes."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 2))


@dataclass(frozen=True)
class Own:
    """A model of one's own, by what its build returns."""

    make: object

    def build(self, shape, classes):
        return self.make(math.prod(shape), classes)


def flat(*layers):
    return nn.Sequential(nn.Flatten(), *layers)


class Bag(nn.Module):
    """Embeds each pixel's grey."""

    def __init__(self, classes, **kind):
        super().__init__()
        self.table = nn.EmbeddingBag(17, classes, mode="sum", **kind)

    def forward(self, inputs):
        return self.table((16 * inputs.flatten(1)).long().clamp(0, 16))


UNTRAINABLE = {
    "build returned None, and must return": lambda d, k: None,
    "build returned <class ": lambda d, k: nn.Linear,
    "build returned (Flatten(": lambda d, k: (nn.Flatten(), nn.Linear(d, k)),
    "it fails on inputs of shape [2, 1, 8, 8] (mat1 and mat2": lambda d, k: flat(nn.Linear(9, k)),
    "to have 3 channels": lambda d, k: flat(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(3, 1, 3)),
    "types float16, float32: store parameters": lambda d, k: flat(nn.Linear(d, k)).half(),
    "types bfloat16, float32: ": lambda d, k: flat(nn.Linear(d, 4), nn.Linear(4, k).bfloat16()),
    "table (EmbeddingBag) has sparse gradients": lambda d, k: Bag(k, sparse=True),
    "compiled by torch.jit": lambda d, k: torch.jit.trace(nn.Linear(d, k), torch.zeros(1, d)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize("sentence", UNTRAINABLE)
def test_a_model_of_ones_own_that_cannot_be_trained_is_told_why(sentence, engine):
    with pytest.raises(UserError, match=r"^the model cannot be trained: ") as told:
        fit(run_of(dataset=Digits(0.2), model=Own(UNTRAINABLE[sentence]), engine=engine), NOWHERE)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("end", [nn.Softmax(1), nn.Sigmoid()])
def test_probabilities_in_place_of_logits_are_warned_of(end):
    model = flat(nn.Linear(64, 10), end)
    with pytest.warns(
        UserWarning, match="outputs for made-up inputs are probabilities, and the lo"
    ):
        check_outputs(model, probe(Digits(0.2), 1).inputs, 10)


@pytest.mark.filterwarnings("error")
def test_logits_are_none_even_where_they_begin_at_0_or_end_in_a_logarithm():
    still = nn.Linear(64, 10)
    nn.init.zeros_(still.weight), nn.init.zeros_(still.bias)
    for layers in ([still], [nn.Linear(64, 10), nn.LogSoftmax(1)], [nn.Linear(64, 10), nn.ReLU()]):
        check_outputs(flat(*layers), probe(Digits(0.2), 1).inputs, 10)


class Normalised:
    """A layer normalisation, which torch on a CPU does not vectorise in two precisions."""

    def build(self, shape, classes):
        layers = nn.Linear(64, 8), nn.Mish(), nn.LayerNorm(8), nn.Linear(8, classes)
        return nn.Sequential(nn.Flatten(), *layers)


FEDERATED = dp_fedavg(0.5, 1, 5, 0.1, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "users"), [(FEDERATED, iid(20, 0.0)), (bam_exact(1, 0.5), None)]
)
def test_passes_of_a_method_that_torch_cannot_take_are_a_sentence(method, users):
    run = replace(run_of(users=users, batch_size=10), method=method, model=Normalised())
    fit(replace(run, epochs=1, batch_size=20 if users else 1438), NOWHERE)
    run = replace(run, precision="bf16", engine="ghost")
    with pytest.raises(UserError, match="fails with this model at precision=bf16: expected scalar"):
        fit(run, NOWHERE)


class Double(Logistic):
    """A model that changes what torch makes from now on."""

    def build(self, shape, classes):
        torch.set_default_dtype(torch.float64)
        return super().build(shape, classes)


@pytest.mark.parametrize("within", [torch.no_grad, lambda: torch.device("meta"), None])
def test_changed_defaults_of_torch_are_a_sentence(within):
    run = run_of() if within else replace(run_of(), model=Double(False))
    try:
        with within() if within else nullcontext(), pytest.raises(UserError, match="torch's own"):
            plan(run)
    finally:
        torch.set_default_dtype(torch.float32)
