"""Engines, physical batch sizes and views that change nothing change a run by rounding only."""

from dataclasses import replace

import pytest
import torch

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.dutch import Dutch
from dpbench.learning.models.predict import predict
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.digest import digest
from dpbench.runs.training import trainer
from dpbench.runs.training.plan import plan
from dpbench.runs.training.start import private_step
from dpbench.runs.training.trainer import fit
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.methods.fairlens import fairlens
from dpbench.system import memory
from tests.runs.training.small_runs import NOWHERE, run_of, what_it_measured, witnessed


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        # One test image of a digit weighs about 1/36; none may tip.
        assert value == pytest.approx(theirs[name], rel=1e-3, abs=1e-3), name


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ghost", "loop", "vmap"])
def test_every_engine_measures_the_same_up_to_rounding(engine):
    usual = run_of("dpsgd_f", epochs=1, engine="auto")
    record = fit(replace(usual, engine=engine), NOWHERE)
    assert record.provenance["engine"] == engine
    close(record.metrics, fit(usual, NOWHERE).metrics)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 50, 7])
def test_physical_batches_measure_the_same_up_to_rounding(size):
    whole = fit(run_of("dpsgd_global_adapt", epochs=1), NOWHERE)
    parts = fit(run_of("dpsgd_global_adapt", epochs=1, physical_batch_size=size), NOWHERE)
    close(parts.metrics, whole.metrics)
    assert parts.privacy == whole.privacy


@pytest.mark.sampled(1)
@pytest.mark.slow
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
    w, record = witnessed(epochs=1, augmentation=TURNED)
    assert torch.equal(w.batches[0], plain.batches[0].flip(-2))
    outputs, _ = predict(w.step.engine.model, w.step.engine.loss, Digits(0.2).load(NOWHERE, 0).test)
    right = outputs.argmax(1) == Digits(0.2).load(NOWHERE, 0).test.targets
    assert record.metrics["test/accuracy"] == pytest.approx(right.double().mean().item())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "replayed"),
    [({}, "3 steps and 0 sums"), ({"physical_batch_size": 50}, "0 steps and 50 sums")],
)
def test_a_run_with_graphs_has_the_same_bits(changes, replayed, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda traced, **_: traced)
    usual, graph = (fit(run_of(graph=graph, **changes), NOWHERE) for graph in (False, True))
    assert what_it_measured(graph) == what_it_measured(usual)
    assert graph.provenance["graph"].startswith(f"{replayed} replayed")
    assert "graph" not in usual.provenance


def test_graphs_are_a_setting_of_engines_that_is_in_no_name():
    usual, graph = (compose([f"engine.graph={value}"]) for value in ("false", "true"))
    assert [build(config).graph for config in (usual, graph)] == [False, True]
    assert digest(usual) == digest(graph) == digest(compose(["engine=loop"]))
