"""The trainer, on scikit-learn's digits and a small network."""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from absl import logging as absl_logging

from dpbench import memory
from dpbench.data.dataset import Data, Split
from dpbench.data.derive.augmentation import ShiftsFlips
from dpbench.data.digits import Digits
from dpbench.data.dutch import Dutch
from dpbench.errors import UserError
from dpbench.mechanism.physical_batches import PhysicalBatches
from dpbench.mechanism.streams import seeded
from dpbench.methods.dpsgd import dpsgd
from dpbench.methods.dpsgd_f import dpsgd_f
from dpbench.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.methods.fairlens import fairlens
from dpbench.methods.sgd import sgd
from dpbench.models.architecture import cross_entropy
from dpbench.models.mlp import Mlp
from dpbench.models.predict import predict
from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import Ledger
from dpbench.training import progress, trainer
from dpbench.training.averaging import MovingAverage
from dpbench.training.budget import Privacy
from dpbench.training.plan import Run, plan
from dpbench.training.trainer import fit, pick_device, private_step

NOWHERE = Path("/nowhere")  # digits need no folder
METHODS = {
    "sgd": sgd(),
    "dpsgd": dpsgd(0.5, "corrected"),
    "dpsgd_f": dpsgd_f(0.5, 10.0, "corrected"),
    "dpsgd_global_adapt": dpsgd_global_adapt(0.5, 5.0, 1.0, 0.1, 10.0, "corrected"),
}


@pytest.fixture(autouse=True, scope="module")
def few_words():
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    yield
    absl_logging.set_verbosity(before)


def run_of(method="dpsgd", lr=0.5, **changes):
    usual = {
        "dataset": Digits(0.2),
        "model": Mlp((16,), "tanh"),
        "privacy": Privacy(1.0, None, 1e-5, "rdp"),
        "optimizer": partial(torch.optim.SGD, lr=lr),
        "sampler": "poisson",
        "epochs": 2,
        "batch_size": 128,
        "seed": 0,
    }
    return Run(method=METHODS[method], **usual | changes)


@dataclass
class Witness:
    """Diagnostics that keep what they are shown, and draw from torch's global generator."""

    batches: list = field(default_factory=list)
    epochs: int = 0

    def observer(self, step, train, test):
        self.step, self.train = step, train
        self.start = step.engine.parameters.theta.detach().clone()
        return self

    def before(self, batch):
        torch.rand(7)
        self.batches.append(batch.inputs.clone())

    def end_of_epoch(self):
        self.epochs += 1

    def series(self):
        return {"steps": [len(self.batches)]}


def witnessed(**changes):
    witness = Witness()
    return witness, fit(run_of(diagnostics=witness, **changes), NOWHERE)


def what_it_measured(record):
    return record.metrics, record.history, record.privacy, record.status


def test_the_same_run_twice_measures_the_same_to_the_last_bit():
    first, second = (fit(run_of("dpsgd_global_adapt"), NOWHERE) for _ in range(2))
    assert what_it_measured(first) == what_it_measured(second)


def test_a_record_keeps_what_its_calibration_was_computed_from():
    record = fit(run_of(), NOWHERE)
    bins, said = record.calibration["bins"], record.metrics
    filled = [i for i, count in enumerate(bins["count"]) if count]
    gaps = [bins["count"][i] * abs(bins["accuracy"][i] - bins["confidence"][i]) for i in filled]
    assert sum(bins["count"]) == 359
    assert sum(gaps) / 359 == pytest.approx(said["test/ece"])
    low, high = record.calibration["interval"]["accuracy"]
    assert low < said["test/accuracy"] < high
    assert record.calibration["temperature"]["ece"] == said["test/ece_temperature"]


@pytest.fixture
def streams(monkeypatch):
    """The private streams that runs make from then on, in order."""
    made = []

    def noted(*arguments):
        made.append(seeded(*arguments))
        return made[-1]

    monkeypatch.setattr("dpbench.training.plan.seeded", noted)
    return made


def named(seed: int, bound: float) -> dict:
    """A configuration, as far as it names a run."""
    choices = {"dataset": "digits", "model": "mlp", "method": "dpsgd_global_adapt"}
    return {"seed": seed, "choices": choices, "method": {"bound": bound}}


def test_no_stream_of_a_run_is_another_s_nor_another_run_s(streams):
    """Noise, counts and batches: of two seeds, and of two runs that share their seed."""
    for seed in (0, 1):
        for bound in (0.5, 0.6):
            run = run_of("dpsgd_global_adapt", seed=seed, epochs=1, config=named(seed, bound))
            fit(run, NOWHERE)
    assert len(streams) == 12
    assert len({stream.state_dict()["key"] for stream in streams}) == 12
    made, size = 12, 64 * 16 + 16 + 16 * 10 + 10
    for noise, counts, batches in zip(*[iter(streams)] * 3, strict=True):
        assert noise.state_dict()["drawn"] == made * size
        assert counts.state_dict()["drawn"] == made
        assert batches.state_dict()["drawn"] > 1000


def test_runs_of_one_seed_start_from_the_same_weights_and_have_noise_of_their_own():
    def step(bound):
        run = run_of(config=named(0, bound))
        return private_step(run, plan(run), torch.device("cpu"))

    one, other = step(0.5), step(0.6)
    assert torch.equal(*(of.engine.parameters.theta for of in (one, other)))
    assert not torch.isclose(*(of.noise.bits(100).double() for of in (one, other))).any()


def test_secure_noise_is_another_one_each_time_and_no_seed_makes_it(streams):
    records = [fit(run_of(noise="secure", config=named(0, 0.5)), NOWHERE) for _ in range(2)]
    assert not streams
    assert records[0].metrics != records[1].metrics
    assert {record.privacy["arithmetic"] for record in records} == {"secure"}
    assert fit(run_of(), NOWHERE).privacy["arithmetic"] == "float"
    assert fit(run_of("sgd"), NOWHERE).privacy["arithmetic"] is None
    with pytest.raises(UserError, match="noise=safe is unknown: choose from secure, seeded"):
        run_of(noise="safe")


def test_the_fit_to_the_training_examples_is_measured_at_the_end():
    record = fit(run_of(epochs=8), NOWHERE)
    assert set(named_train := {n for n in record.metrics if n.startswith("train_set/")}) == {
        f"train_set/{metric}{group}"
        for metric in ("accuracy", "loss")
        for group in ("", *(f"/{name}" for name in Digits(0.2).groups))
    }
    assert len(named_train) == 22
    # The mean over the last epoch's batches, taken while the model still moved, is close to it.
    assert record.metrics["train_set/loss"] == pytest.approx(
        record.history["train/loss"][-1], rel=0.2
    )
    assert record.covered["metrics"] is False


def test_another_seed_measures_something_else():
    assert fit(run_of(seed=1), NOWHERE).metrics != fit(run_of(), NOWHERE).metrics


@pytest.mark.parametrize("method", METHODS)
def test_nothing_depends_on_torch_s_global_generator(method):
    torch.manual_seed(1)
    alone = fit(run_of(method, epochs=1), NOWHERE)
    torch.manual_seed(2)
    witness, watched = witnessed(method=method, epochs=1)
    assert what_it_measured(watched) == what_it_measured(alone)
    assert watched.diagnostics == {"steps": [12]}
    assert witness.epochs == 1


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        # One test image of a digit weighs about 1/36; none may tip.
        assert value == pytest.approx(theirs[name], rel=1e-3, abs=1e-3), name


@pytest.mark.parametrize("engine", ["ghost", "loop", "vmap"])
def test_every_engine_measures_the_same_up_to_rounding(engine):
    usual = run_of("dpsgd_f", epochs=1, engine="auto")
    record = fit(replace(usual, engine=engine), NOWHERE)
    assert record.provenance["engine"] == engine
    close(record.metrics, fit(usual, NOWHERE).metrics)


@pytest.mark.parametrize("size", [1000, 50, 7])
def test_physical_batches_measure_the_same_up_to_rounding(size):
    whole = fit(run_of("dpsgd_global_adapt", epochs=1), NOWHERE)
    parts = fit(run_of("dpsgd_global_adapt", epochs=1, physical_batch_size=size), NOWHERE)
    close(parts.metrics, whole.metrics)
    assert parts.privacy == whole.privacy


@pytest.mark.parametrize(("room", "size"), [(2**40, 186), (-(2**40), 1)])
def test_a_physical_size_that_is_found_measures_the_same_up_to_rounding(monkeypatch, room, size):
    """120 and 6 standard deviations where there is room; one at a time where there is none."""
    monkeypatch.setattr(memory, "free", lambda _: room)
    for module in (memory, trainer):
        monkeypatch.setattr(module, "check_measurable", lambda _: None)
    usual = run_of("dpsgd_f", epochs=1, device="cpu")
    found = fit(replace(usual, physical_batch_size="auto"), NOWHERE)
    assert found.provenance["physical_batch_size"] == size
    whole = fit(usual, NOWHERE)
    close(found.metrics, whole.metrics)
    assert found.privacy == whole.privacy


def test_a_method_that_needs_whole_batches_has_them_where_the_size_is_to_be_found():
    method = fairlens(0.5, 1.0, 1.0, "corrected")
    run = replace(run_of(dataset=Dutch(0.2)), method=method, physical_batch_size="auto")
    step = private_step(run, plan(run), torch.device("cpu"))
    assert step.physical == PhysicalBatches(None, adaptive=False)


def test_predictions_that_do_not_fit_at_once_are_made_in_parts():
    witness, _ = witnessed(epochs=1)
    engine, test = witness.step.engine, Digits(0.2).load(NOWHERE, 0).test
    whole = predict(engine.model, engine.loss, test)

    def cramped(_, inputs):
        if len(inputs[0]) > 100:
            raise torch.OutOfMemoryError("out of memory")

    engine.model.register_forward_pre_hook(cramped)
    for ours, theirs in zip(predict(engine.model, engine.loss, test), whole, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_paired_by_seed(method):
    """Same split, same initial weights, same batches: whatever the methods draw beside."""
    ours, _ = witnessed(method=method, epochs=1)
    baseline, _ = witnessed(method="sgd", epochs=1)
    assert torch.equal(ours.start, baseline.start)
    assert torch.equal(ours.train.inputs, baseline.train.inputs)
    assert len(ours.batches) == len(baseline.batches) == 12
    assert all(map(torch.equal, ours.batches, baseline.batches))


def test_another_seed_has_another_split_other_weights_and_other_batches():
    (one, _), (other, _) = (witnessed(seed=seed, epochs=1) for seed in (0, 1))
    assert not torch.equal(one.start, other.start)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    assert [len(b) for b in one.batches] != [len(b) for b in other.batches]


def test_private_methods_draw_the_same_noise_from_the_same_seed_whatever_they_count():
    plain, counting = (
        witnessed(method=method, epochs=1)[0] for method in ("dpsgd", "dpsgd_global_adapt")
    )
    draws = [witness.step.noise.bits(4) for witness in (plain, counting)]
    assert torch.equal(*draws)


@pytest.mark.parametrize(("batch_size", "steps"), [(1438, 1), (1437, 2), (719, 2), (128, 12)])
def test_the_ledger_holds_every_step(batch_size, steps):
    witness, record = witnessed(epochs=2, batch_size=batch_size)
    assert record.privacy["steps"] == len(witness.batches) == 2 * steps
    assert record.privacy["sample_rate"] == 1 / steps
    assert plan(run_of(epochs=3, batch_size=batch_size)).steps == 3 * steps


def test_what_is_measured_is_the_last_model_on_the_test_examples():
    witness, record = witnessed()
    test = Digits(0.2).load(NOWHERE, 0).test
    outputs, losses = predict(
        witness.step.engine.model, witness.step.engine.loss, test, batch_size=100
    )
    right = outputs.argmax(1) == test.targets
    assert record.metrics["test/accuracy"] == pytest.approx(right.double().mean().item())
    assert record.metrics["test/loss"] == pytest.approx(losses.double().mean().item())
    threes = test.groups == 3
    assert record.metrics["test/accuracy/3"] == pytest.approx(right[threes].double().mean().item())


def test_an_epoch_s_loss_is_the_mean_over_the_examples_it_saw():
    witness, record = witnessed(epochs=1, batch_size=1438)
    engine, train = witness.step.engine, witness.train
    named = engine.parameters.unflatten(witness.start)
    outputs = torch.func.functional_call(engine.model, named, (train.inputs,))
    expected = cross_entropy(outputs, train.targets).mean().item()
    assert record.history["train/loss"] == [pytest.approx(expected, rel=1e-5)]


COPIES = ShiftsFlips(views=3, shift=0, padding="zero", flip="none", probability=0.5)
TURNED = ShiftsFlips(views=1, shift=0, padding="zero", flip="vertical", probability=1.0)
VIEWS = ShiftsFlips(views=2, shift=2, padding="reflect", flip="horizontal", probability=0.5)


def test_one_view_that_is_the_example_itself_changes_nothing_to_the_last_bit():
    plain = fit(run_of("dpsgd_global_adapt"), NOWHERE)
    once = fit(run_of("dpsgd_global_adapt", augmentation=replace(COPIES, views=1)), NOWHERE)
    assert what_it_measured(once) == what_it_measured(plain)


@pytest.mark.parametrize("engine", ["ghost", "loop", "vmap"])
def test_copies_of_an_example_change_nothing_up_to_rounding(engine):
    plain = fit(run_of("dpsgd_f", epochs=1), NOWHERE)
    copies = fit(run_of("dpsgd_f", epochs=1, augmentation=COPIES, engine=engine), NOWHERE)
    close(copies.metrics, plain.metrics)
    assert copies.privacy == plain.privacy


def test_augmented_runs_are_paired_with_plain_ones_and_views_are_drawn_anew():
    plain, _ = witnessed()
    ours, record = witnessed(augmentation=VIEWS)
    assert torch.equal(ours.start, plain.start)
    assert [len(batch) for batch in ours.batches] == [len(batch) for batch in plain.batches]
    assert {batch.shape[1:] for batch in ours.batches} == {(2, 1, 8, 8)}
    assert not torch.equal(ours.batches[0][:, 0], ours.batches[0][:, 1])
    draws = [witness.step.noise.bits(4) for witness in (plain, ours)]
    assert torch.equal(*draws)
    assert record.privacy == fit(run_of(), NOWHERE).privacy
    again = fit(run_of(augmentation=VIEWS), NOWHERE)
    assert what_it_measured(again) == what_it_measured(record)


def test_training_examples_are_augmented_and_test_examples_are_not():
    plain, _ = witnessed(epochs=1)
    witness, record = witnessed(epochs=1, augmentation=TURNED)
    assert torch.equal(witness.batches[0], plain.batches[0].flip(-2))
    outputs, _ = predict(
        witness.step.engine.model, witness.step.engine.loss, Digits(0.2).load(NOWHERE, 0).test
    )
    right = outputs.argmax(1) == Digits(0.2).load(NOWHERE, 0).test.targets
    assert record.metrics["test/accuracy"] == pytest.approx(right.double().mean().item())


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_the_moving_average_is_tested_and_the_training_does_not_notice(decay):
    class Steps(Witness):
        def before(self, batch):
            self.batches.append(self.step.engine.parameters.theta.detach().clone())

    witness = Steps()
    record = fit(run_of(diagnostics=witness, ema_decay=decay), NOWHERE)
    plain = fit(run_of(), NOWHERE)
    assert (record.history, record.privacy) == (plain.history, plain.privacy)
    assert (record.metrics == plain.metrics) == (decay == 0)

    theta = witness.step.engine.parameters.theta
    *_, last = places = [*witness.batches[1:], theta.detach().clone()]
    average = MovingAverage(decay, torch.nn.Parameter(witness.batches[0]))
    for place in places:
        average.theta.data.copy_(place)
        average.update()
    assert torch.equal(average.average, last) == (decay == 0)
    theta.data.copy_(average.average)
    test = Digits(0.2).load(NOWHERE, 0).test
    _, losses = predict(witness.step.engine.model, witness.step.engine.loss, test)
    assert record.metrics["test/loss"] == pytest.approx(losses.double().mean().item(), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_training_learns(method):
    """Guessing is right in 10%."""
    record = fit(run_of(method, lr=2.0, epochs=6), NOWHERE)
    assert record.status == "complete"
    assert record.metrics["test/accuracy"] > 0.5
    loss = record.history["train/loss"]
    assert len(loss) == 6
    assert loss[-1] < loss[0]


def test_a_run_that_diverges_ends_there_with_nan_and_the_steps_it_made():
    wild = dpsgd(1e3, "corrected")
    run = replace(run_of(lr=1e38, epochs=3), method=wild)
    record = fit(run, NOWHERE)
    assert record.status == "diverged"
    assert all(math.isnan(value) for value in record.metrics.values())
    assert record.privacy["steps"] == 12 < plan(run).steps
    assert len(record.history["train/loss"]) == 1


def test_one_output_that_is_not_finite_is_divergence_too(monkeypatch):
    """Weights stay finite as a rule, because gradients that are not finite count as zero."""

    def spoilt(*arguments):
        outputs, losses = predict(*arguments)
        outputs[0, 0] = math.inf
        return outputs, losses

    monkeypatch.setattr(trainer, "predict", spoilt)
    record = fit(run_of(epochs=1), NOWHERE)
    assert record.status == "diverged"
    assert all(math.isnan(value) for value in record.metrics.values())


@dataclass(frozen=True)
class OneBroken(Digits):
    """Digits whose first training example is not finite."""

    broken: float = math.nan

    def load(self, folder, seed):
        data = Digits.load(self, folder, seed)
        inputs = data.train.inputs.clone()
        inputs[0] = self.broken
        return Data(Split(inputs, data.train.targets, data.train.groups), data.test)


@dataclass(frozen=True)
class AllBroken(Digits):
    """Digits whose training examples are none."""

    def load(self, folder, seed):
        data = Digits.load(self, folder, seed)
        inputs = torch.full_like(data.train.inputs, math.nan)
        return Data(Split(inputs, data.train.targets, data.train.groups), data.test)


@pytest.mark.parametrize("method", ["sgd", "dpsgd"])
def test_where_no_gradient_is_finite_a_run_has_diverged(method):
    """Its parameters stay finite: of all those gradients only the noise is left."""
    run = run_of(method, dataset=AllBroken(0.2), epochs=3)
    record = fit(run, NOWHERE)
    assert record.status == "diverged"
    assert all(math.isnan(value) for value in record.metrics.values())
    assert len(record.history["train/loss"]) == 1
    assert record.privacy["steps"] == plan(run).sampler.steps_per_epoch


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_an_example_that_is_not_finite_is_counted_and_poisons_nothing(method, broken):
    run = run_of(method, dataset=OneBroken(0.2, broken), epochs=1, batch_size=719)
    record = fit(run, NOWHERE)
    assert record.status == "complete"
    assert all(math.isfinite(v) for name, v in record.metrics.items() if name.startswith("test/"))
    assert math.isnan(record.metrics["train_set/loss"])  # one of whose examples has none
    assert all(map(math.isfinite, record.history["train/loss"]))
    witness, _ = witnessed(method=method, dataset=run.dataset, epochs=1, batch_size=719)
    seen = sum(int((~batch.isfinite()).flatten(1).any(1).sum()) for batch in witness.batches)
    # An infinite pixel saturates tanh, so its gradient is not finite either: 0 * inf.
    assert record.history["train/not_finite"] == [seen]
    assert seen > 0


@dataclass(frozen=True)
class Unreadable(Digits):
    """Digits that must not be read."""

    def load(self, folder, seed):
        pytest.fail("data was read")


def test_a_plan_reads_nothing():
    planned = plan(run_of(dataset=Unreadable(0.2), epochs=3))
    assert planned.steps == planned.ledger.steps == 36
    assert planned.noise_multiplier == 1.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 1439}, "larger than the 1438 training examples"),
        ({"lr": -1.0}, "model or optimizer cannot be built: Invalid learning rate: -1.0"),
        ({"lr": 1e39}, "model or optimizer cannot be built"),
        ({"device": "nonsense"}, "device=nonsense is not available here"),
        ({"augmentation": replace(VIEWS, shift=8)}, "shift=8 must be less than the side"),
        ({"ema_decay": 1.0}, "ema_decay must be a number from 0 to below 1"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_data_is_read(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        fit(run_of(dataset=Unreadable(0.2), **changes), NOWHERE)


def test_where_memory_cannot_be_measured_nothing_is_read(monkeypatch):
    monkeypatch.setattr(memory, "resident", lambda _: None)
    run = run_of(dataset=Unreadable(0.2), physical_batch_size="auto", device="cpu")
    with pytest.raises(UserError, match="physical_batch_size=auto cannot measure"):
        fit(run, NOWHERE)


def test_a_method_that_does_not_fit_the_data_is_refused_before_data_is_read():
    run = replace(run_of(dataset=Unreadable(0.2)), method=fairlens(0.5, 1.0, 1.0, "corrected"))
    with pytest.raises(UserError, match="exactly 2 groups and digits has 10"):
        fit(run, NOWHERE)


def test_shuffled_batches_have_no_epsilon():
    record = fit(run_of(sampler="shuffled", epochs=1), NOWHERE)
    assert record.privacy["guarantee"] == "none"
    assert [record.privacy[name] for name in ("rdp", "pld", "gdp", "claimed")] == [None] * 4


def test_a_device_is_picked_by_name():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("nonsense", "meta"):
        with pytest.raises(UserError, match=f"device={name} is not available here"):
            pick_device(name)


class FakeBar:
    """Stands in for rich's progress bar."""

    def __init__(self):
        self.told = {}

    def add_task(self, *_, **told):
        self.told |= told

    def start(self):
        self.running = True

    def stop(self):
        self.running = False

    def update(self, task, **told):
        self.told |= told


def test_a_terminal_shows_steps_loss_and_the_epsilon_so_far(monkeypatch):
    now, bar = [0.0], FakeBar()
    monkeypatch.setattr(progress, "_bar", lambda: bar)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    planned = plan(run_of(epochs=3))
    with progress.Progress(planned, 1e-5, quiet=False) as shown:
        assert bar.told == {"total": 36, "completed": 0, "visible": False}
        assert bar.running
        shown.advance()
        assert bar.told["visible"] is False, "drawn for a run that may end at once"
        shown.show_loss(2.5)
        now[0] = 10.0
        shown.advance()
    assert not bar.running
    assert (bar.told["completed"], bar.told["visible"]) == (2, True)
    spent = rdp(Ledger().after(planned.step, 2), 1e-5)
    assert bar.told["description"] == f"loss 2.500  epsilon {spent:.2f}"


def test_nothing_is_drawn_where_nobody_looks(capfd):
    fit(run_of(epochs=1), NOWHERE)
    assert capfd.readouterr() == ("", "")
