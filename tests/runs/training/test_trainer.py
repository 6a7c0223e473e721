"""The trainer, on scikit-learn's digits and a small network."""

import pytest
import torch

from dpbench.learning.data.digits import Digits
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.predict import predict
from dpbench.runs.training.loop import MovingAverage
from dpbench.runs.training.plan import plan
from dpbench.runs.training.start import pick_device
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import UserError
from tests.runs.training.small_runs import METHODS, NOWHERE, Witness, run_of, witnessed

pytestmark = pytest.mark.usefixtures("engines_checked_once")


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


@pytest.mark.slow
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


@pytest.mark.parametrize(("batch_size", "steps"), [(1438, 1), (1437, 2), (719, 2), (128, 12)])
def test_the_ledger_holds_every_step(batch_size, steps):
    witness, record = witnessed(epochs=2, batch_size=batch_size)
    assert record.privacy["steps"] == len(witness.batches) == 2 * steps
    assert record.privacy["sample_rate"] == 1 / steps
    assert plan(run_of(epochs=3, batch_size=batch_size)).steps == 3 * steps


@pytest.mark.slow
def test_metrics_are_of_the_last_model_on_the_test_examples():
    seen, record = witnessed()
    test = Digits(0.2).load(NOWHERE, 0).test
    outputs, losses = predict(seen.step.engine.model, seen.step.engine.loss, test, batch_size=100)
    right = outputs.argmax(1) == test.targets
    assert record.metrics["test/accuracy"] == pytest.approx(right.double().mean().item())
    assert record.metrics["test/loss"] == pytest.approx(losses.double().mean().item())
    threes = test.groups == 3
    assert record.metrics["test/accuracy/3"] == pytest.approx(right[threes].double().mean().item())


@pytest.mark.slow
def test_an_epoch_s_loss_is_the_mean_over_the_examples_it_saw():
    witness, record = witnessed(epochs=1, batch_size=1438)
    engine, train = witness.step.engine, witness.train
    named = engine.parameters.unflatten(witness.start)
    outputs = torch.func.functional_call(engine.model, named, (train.inputs,))
    expected = cross_entropy(outputs, train.targets).mean().item()
    assert record.history["train/loss"] == [pytest.approx(expected, rel=1e-5)]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_training_learns(method):
    """Guessing is right in 10%."""
    record = fit(run_of(method, lr=2.0, epochs=6), NOWHERE)
    assert record.status == "complete"
    assert record.metrics["test/accuracy"] > 0.5
    loss = record.history["train/loss"]
    assert len(loss) == 6
    assert loss[-1] < loss[0]


def test_shuffled_batches_have_no_epsilon_and_a_device_is_picked_by_name():
    record = fit(run_of(sampler="shuffled", epochs=1), NOWHERE)
    assert record.privacy["guarantee"] == "none"
    assert [record.privacy[name] for name in ("rdp", "pld", "gdp", "claimed")] == [None] * 4
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("nonsense", "meta"):
        with pytest.raises(UserError, match=f"device={name} is not available here"):
            pick_device(name)


def test_a_quick_run_prints_no_progress(capfd):
    fit(run_of(epochs=1), NOWHERE)
    assert capfd.readouterr() == ("", "")
