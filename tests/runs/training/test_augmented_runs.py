"""Runs on augmented examples."""

from dataclasses import replace

import pytest
import torch

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.digits import Digits
from dpbench.learning.models.predict import predict
from dpbench.runs.training.trainer import fit
from tests.runs.training.small_runs import NOWHERE, run_of, what_it_measured, witnessed


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        # One test image of a digit weighs about 1/36; none may tip.
        assert value == pytest.approx(theirs[name], rel=1e-3, abs=1e-3), name


COPIES = ShiftsFlips(views=3, shift=0, padding="zero", flip="none", probability=0.5)
TURNED = ShiftsFlips(views=1, shift=0, padding="zero", flip="vertical", probability=1.0)
VIEWS = ShiftsFlips(views=2, shift=2, padding="reflect", flip="horizontal", probability=0.5)


@pytest.mark.slow
def test_one_view_that_is_the_example_itself_changes_nothing_to_the_last_bit():
    plain = fit(run_of("dpsgd_global_adapt"), NOWHERE)
    once = fit(run_of("dpsgd_global_adapt", augmentation=replace(COPIES, views=1)), NOWHERE)
    assert what_it_measured(once) == what_it_measured(plain)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ghost", "loop", "vmap"])
def test_copies_of_an_example_change_nothing_up_to_rounding(engine):
    plain = fit(run_of("dpsgd_f", epochs=1), NOWHERE)
    copies = fit(run_of("dpsgd_f", epochs=1, augmentation=COPIES, engine=engine), NOWHERE)
    close(copies.metrics, plain.metrics)
    assert copies.privacy == plain.privacy


@pytest.mark.slow
def test_augmented_runs_are_paired_with_plain_ones_and_views_are_drawn_anew():
    plain, _ = witnessed()
    ours, record = witnessed(augmentation=VIEWS)
    assert torch.equal(ours.start, plain.start)
    assert [len(batch) for batch in ours.batches] == [len(batch) for batch in plain.batches]
    assert {batch.shape[1:] for batch in ours.batches} == {(2, 1, 8, 8)}
    assert not torch.equal(ours.batches[0][:, 0], ours.batches[0][:, 1])
    draws = [witness.step.noise_stream.bits(4) for witness in (plain, ours)]
    assert torch.equal(*draws)
    assert record.privacy == fit(run_of(), NOWHERE).privacy
    again = fit(run_of(augmentation=VIEWS), NOWHERE)
    assert what_it_measured(again) == what_it_measured(record)


@pytest.mark.slow
def test_training_examples_are_augmented_and_test_examples_are_not():
    plain, _ = witnessed(epochs=1)
    witness, record = witnessed(epochs=1, augmentation=TURNED)
    assert torch.equal(witness.batches[0], plain.batches[0].flip(-2))
    outputs, _ = predict(
        witness.step.engine.model, witness.step.engine.loss, Digits(0.2).load(NOWHERE, 0).test
    )
    right = outputs.argmax(1) == Digits(0.2).load(NOWHERE, 0).test.targets
    assert record.metrics["test/accuracy"] == pytest.approx(right.double().mean().item())
