import math

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Split
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.config.buildable import check_settings
from dpbench.runs.diagnostics.batch_bias import measure
from dpbench.runs.diagnostics.bias import BiasDiagnostics
from dpbench.step.gradients import make_engine
from dpbench.system.errors import UserError

GROUPS = [0, 1] * 12 + [0] * 6
QUANTILES = [0.25, 0.5]


def settings(**changes):
    plain = {"every": 2, "examples": "batch", "probe_size": 10, "chunk": 7, "groups": None}
    plain |= {"quantiles": QUANTILES, "sizes": [], "repeats": 2}
    check_settings(BiasDiagnostics, plain | changes, "diagnostics.")
    return BiasDiagnostics(**plain | changes)


def run(small, diagnostics, name="dpsgd", groups=GROUPS, count=5):
    """The series of some steps, and what a measurement before each one says."""
    split = small.split(groups)
    step = small.step(small.method(name, split), small.network())
    observer = diagnostics.observer(step, split)
    alone = []
    for batch in small.batches(split, count):
        alone.append((step, batch, measure(step, [batch], [0, 1], QUANTILES)))
        observer.before(batch)
        step(batch)
    observer.end_of_epoch()
    return observer.series(), [values for *_, values in alone]


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("examples", "physical"), [("batch", None), ("batch", 4), ("probe", None), ("all", 4)]
)
def test_a_run_is_the_same_to_the_last_bit_with_and_without(small, method_name, examples, physical):
    diagnostics = settings(examples=examples, chunk=30 if method_name == "fairlens" else 7)
    small.assert_undisturbed(diagnostics, method_name, physical)


def test_columns_are_the_measurements_of_the_steps_that_are_due(small):
    series, alone = run(small, settings(every=2, chunk=100))
    assert series.pop("step") == [0, 2, 4]
    assert set(series) == {f"step/{name}" for name in alone[0]}
    for name, column in series.items():
        assert all(type(value) is float for value in column), name
        expected = [alone[i][name.removeprefix("step/")] for i in (0, 2, 4)]
        assert column == pytest.approx(expected, nan_ok=True), name


def test_a_chunk_changes_nothing(small):
    (whole, _), (chunked, _) = (run(small, settings(chunk=chunk)) for chunk in (100, 2))
    assert whole.keys() == chunked.keys()
    for name, column in whole.items():
        assert chunked[name] == pytest.approx(column, rel=1e-9, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("examples", ["batch", "probe", "all"])
def test_no_pass_is_larger_than_the_chunk_or_a_physical_batch(small, examples):
    for chunk, physical, most in [(6, None, 6), (6, 4, 4), (2, 4, 2)]:
        split, sizes = small.split(GROUPS), []
        step = small.step(small.method("bam", split), small.network(), physical=physical)
        step.engine.model.register_forward_pre_hook(
            lambda _, x, sizes=sizes: sizes.append(len(x[0]))
        )
        observer = settings(examples=examples, chunk=chunk).observer(step, split)
        observer.before(split.at(torch.arange(13)))
        assert max(sizes) == most


def test_the_previous_private_gradient_is_that_of_the_last_step(small):
    """Figure 4 for DP-SAT: with the noise that it was released with, and none at first."""
    split = small.split(GROUPS)
    step = small.step(small.method("dpsat", split), small.network())
    observer = settings(every=1).observer(step, split)
    expected, released = [math.nan], torch.zeros(1)
    for i, batch in enumerate(small.batches(split, 4)):
        observer.before(batch)
        if i:
            mean = step.engine(batch).stack().mean(0)
            expected.append(torch.cosine_similarity(released, mean, dim=0).item())
        released = step.engine.parameters.theta.detach().clone()
        step(batch)
        released -= step.engine.parameters.theta.detach()  # the learning rate times the gradient
    assert observer.series()["step/cos_previous"] == pytest.approx(expected, nan_ok=True)


def test_groups_are_all_where_there_are_several_or_those_asked_for(small):
    def numbers(series):
        return {name.rpartition("/")[2] for name in series if name.count("/") == 2}

    assert numbers(run(small, settings())[0]) == {"0", "1"}
    assert numbers(run(small, settings(groups=[1]))[0]) == {"1"}
    assert numbers(run(small, settings(groups=[]))[0]) == set()
    assert numbers(run(small, settings(), groups=[0] * 30)[0]) == set()


def fixed(small, diagnostics, groups=GROUPS):
    """Two measurements at the same parameters before different batches."""
    split = small.split(groups)
    step = small.step(small.method("dpsgd", split), small.network())
    observer = diagnostics.observer(step, split)
    for batch in small.batches(split, 2):
        observer.before(batch)
    return observer.series(), step, split


@pytest.mark.parametrize("examples", ["probe", "all"])
def test_a_probe_and_all_do_not_depend_on_the_batch(small, examples):
    series, *_ = fixed(small, settings(every=1, examples=examples))
    first, second = ({n: c[i] for n, c in series.items()} for i in (0, 1))
    assert str(first) == str(second)
    moving, *_ = fixed(small, settings(every=1))
    assert moving["step/bias"][0] != moving["step/bias"][1]


def test_all_are_all_of_the_training_split_and_more_are_refused(small):
    series, step, split = fixed(small, settings(every=1, examples="all"))
    everyone = measure(step, [split.at(torch.arange(len(split)))], [0, 1], QUANTILES)
    for name, value in everyone.items():
        assert series[f"step/{name}"][0] == pytest.approx(value, rel=1e-9, nan_ok=True), name
    split = small.split(GROUPS)
    step = small.step(small.method("dpsgd", split), small.network())
    for changes, sentence in [
        ({"examples": "probe", "probe_size": 31}, "probe_size=31 is more than the 30 training"),
        ({"sizes": [4, 31]}, r"sizes=\[4, 31\] exceeds the 30 training"),
    ]:
        with pytest.raises(UserError, match=sentence):
            settings(**changes).observer(step, split)


def test_a_probe_is_a_random_part_that_a_seed_of_torch_does_not_change(small):
    """Each example has its own size of gradient, so that quantiles tell who is in the probe."""
    quantiles = [i / 9 for i in range(10)]
    probes = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        series, step, split = fixed(small, settings(examples="probe", quantiles=quantiles))
        probes.append([series[f"step/norm_q{q:g}"][0] for q in quantiles])
    assert probes[0] == probes[1]
    norms = step.engine(split.at(torch.arange(len(split)))).norms
    members = [(norms - value).abs().argmin().item() for value in probes[0]]
    assert norms[members].tolist() == pytest.approx(probes[0])
    assert len(set(members)) == 10
    assert set(members) != set(range(10))


def test_examples_are_not_augmented_for_a_probe_and_seen_in_every_view(small):
    split = small.split(GROUPS)
    step = small.step(small.method("dpsgd", split), small.network())
    series = {}
    for views in (1, 3):
        if views > 1:
            batch = split.at(torch.arange(2))
            tripled = batch.inputs.unsqueeze(1).repeat(1, views, 1)
            probe = type(batch)(tripled, batch.targets, batch.groups)
            step.engine = make_engine("auto", small.network(), cross_entropy, probe, views)
        observer = settings(examples="all").observer(step, split)
        observer.before(split.at(torch.arange(0)))
        series[views] = observer.series()
    for name, column in series[1].items():
        assert series[3][name] == pytest.approx(column, rel=1e-9, abs=1e-12, nan_ok=True), name


def test_an_empty_batch_is_measured_as_unknown_and_the_next_as_ever(small):
    split = small.split(GROUPS)
    step = small.step(small.method("bam", split), small.network())
    observer = settings(every=1).observer(step, split)
    for batch in (split.at(torch.arange(0)), split.at(torch.arange(9))):
        observer.before(batch)
        step(batch)
    series = observer.series()
    assert series.pop("step") == [0, 1]
    assert all(math.isnan(column[0]) and math.isfinite(column[1]) for column in series.values())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"every": 0}, "diagnostics.every must be a whole number of at least 1, got 0"),
        ({"every": None}, "diagnostics.every must be a whole number"),
        ({"chunk": True}, "diagnostics.chunk must be a whole number"),
        ({"probe_size": 2.5}, "diagnostics.probe_size must be a whole number"),
        ({"examples": "sample"}, "diagnostics.examples=sample is unknown"),
        ({"quantiles": [0.5, 1.5]}, "diagnostics.quantiles must be a number from 0 to 1"),
        ({"quantiles": ["half"]}, "diagnostics.quantiles must be a list of numbers"),
        ({"sizes": [0]}, "each of diagnostics.sizes must be a whole number of at least 1"),
    ],
)
def test_invalid_settings_are_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        settings(**changes)


def test_sizes_are_measured_at_the_last_parameters_on_the_same_batches(small):
    """All 30 examples are one batch, whose bias there is known; two methods draw alike."""
    diagnostics, split = settings(sizes=[5, 30]), small.split(GROUPS)
    step = small.step(small.method("dpsgd", split), small.network())
    observer = diagnostics.observer(step, split)
    for batch in small.batches(split, 3):
        observer.before(batch)
        step(batch)
    series = observer.series()
    everyone = measure(step, [split.at(torch.arange(30))], [], [])
    assert series["end/batch_size"] == [5, 5, 30, 30]
    for name, value in everyone.items():
        assert series[f"end/{name}"][2:] == pytest.approx([value] * 2, rel=1e-6, nan_ok=True), name
    assert series["end/bias"][0] != series["end/bias"][1]
    assert str(observer.series()) == str(series)
    assert not [name for name in run(small, settings())[0] if name.startswith("end/")]


def test_a_method_that_needs_whole_batches_gets_its_examples_in_one_piece(small):
    split = small.split(GROUPS)
    step = small.step(small.method("fairlens", split), small.network())
    with pytest.raises(UserError, match=r"fairlens needs .*examples=batch, or .*chunk=30"):
        settings(examples="all", chunk=29).observer(step, split)
    series, alone = run(small, settings(chunk=2), "fairlens")
    assert series["step/bias"] == pytest.approx([alone[i]["bias"] for i in (0, 2, 4)])


def test_images_are_read_as_a_batch_of_them_is(small):
    """Kept as bytes; measured as numbers from 0 to 1."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (12, 1, 3, 3), dtype=torch.uint8, generator=draw)
    split = Split(images, torch.arange(12) % 2, torch.zeros(12, dtype=torch.int64))
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 2))
    step = small.step(small.method("dpsgd", split), small.network())
    step.engine = make_engine("auto", model, cross_entropy, split.at(torch.arange(2)))
    observer = settings(examples="all").observer(step, split)
    observer.before(split.at(torch.arange(1)))
    whole = measure(step, [split.at(torch.arange(12))], [], [])
    assert observer.series()["step/bias"] == pytest.approx([whole["bias"]], rel=1e-5)
