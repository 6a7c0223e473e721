import math

import pytest
import torch
from torch import nn

from dpbench.runs.config.buildable import check_settings
from dpbench.runs.diagnostics import excess_risk
from dpbench.runs.diagnostics.misalignment import MisalignmentDiagnostics
from dpbench.system.errors import UserError

GROUPS = [0, 1] * 12 + [0] * 6
LR = 0.5


def settings(**changes):
    plain = {"every": 2, "hutchinson": 3, "eigenvalues": True, "chunk": 7, "groups": None}
    check_settings(MisalignmentDiagnostics, plain | changes, "diagnostics.")
    return MisalignmentDiagnostics(**plain | changes)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("physical", [None, 4])
def test_a_run_is_the_same_to_the_last_bit_with_and_without(small, method_name, physical):
    small.assert_undisturbed(settings(), method_name, physical)


def watched(small, name="dpsgd"):
    split = small.split(GROUPS)
    step = small.step(small.method(name, split), small.network(), LR)
    observer = settings().observer(step, split)
    for _ in range(2):
        for batch in small.batches(split, 3):
            observer.before(batch)
            step(batch)
        observer.end_of_epoch()
    return observer.series()


@pytest.mark.slow
def test_columns_are_lists_of_one_length_per_kind(small):
    series = watched(small)
    assert series["step"] == [0, 2, 4]
    assert series["epoch"] == [0, 1]
    for name, column in series.items():
        assert len(column) == (2 if name.startswith("epoch") else 3), name
        assert all(type(value) in (int, float) for value in column), name
    per_group = ["R_mag", "R_dir", "R_mag*", "R_dir*", "R_clip", "R_noise", "trace", "eigenvalue"]
    per_group += ["cos_plain", "cos_clipped", "norm_group"]
    scalars = ["norm_plain", "norm_clipped", "clipped_fraction", "inverse_learning_rate"]
    scalars += ["gap_dir", "bound_prop3", "gap_dir*", "bound_prop3*", "gap_clip", "bound_tran"]
    expected = {f"step/{n}/{k}" for n in per_group for k in (0, 1)} | {f"step/{n}" for n in scalars}
    expected |= {f"epoch/{n}/{k}" for n in ("loss", "gradient_norm") for k in (0, 1)}
    assert set(series) == expected | {"step", "epoch"}


def test_a_measured_step_agrees_with_gradients_and_hessians_in_full(small):
    split = small.split(GROUPS)
    step = small.step(small.method("dpsgd", split), small.network(), LR)
    batch = next(small.batches(split))
    observer = settings().observer(step, split)
    observer.before(batch)
    series = observer.series()

    rows = step.engine(batch).stack()
    norms = rows.norm(dim=1)
    g, c = rows.mean(0), (rows * (0.3 / norms).clamp(max=1).unsqueeze(1)).mean(0)
    shrunk = c.norm() / g.norm() * g
    for k in (0, 1):
        gradient, hessian = small.expand(step.engine, split, k)

        def after(v, gradient=gradient, hessian=hessian):
            return -LR * gradient @ v + LR**2 / 2 * v @ hessian @ v

        def measured(name, k=k):
            return series[f"step/{name}/{k}"][0]

        assert measured("R_mag") == pytest.approx((after(shrunk) - after(g)).item())
        assert measured("R_dir") == pytest.approx((after(c) - after(shrunk)).item())
        assert measured("norm_group") == pytest.approx(gradient.norm().item())
        cosine = torch.cosine_similarity
        assert measured("cos_plain") == pytest.approx(cosine(gradient, g, 0).item())
        assert measured("cos_clipped") == pytest.approx(cosine(gradient, c, 0).item())
        assert measured("R_noise") == pytest.approx(LR**2 / 2 * 0.3**2 * measured("trace"))
    assert series["step/norm_plain"][0] == pytest.approx(g.norm().item())
    assert series["step/norm_clipped"][0] == pytest.approx(c.norm().item())
    assert series["step/clipped_fraction"][0] == pytest.approx((norms > 0.3).double().mean().item())


def test_what_clipping_cost_is_how_the_loss_of_a_small_step_differs(small):
    split = small.split(GROUPS)
    step = small.step(small.method("direction_error", split), small.network(), lr=0.01)
    batch = next(small.batches(split))
    step.expected_batch_size = len(batch)
    observer = settings(eigenvalues=False).observer(step, split)
    observer.before(batch)
    theta = step.engine.parameters.theta
    rows = step.engine(batch).stack()
    losses = []
    for direction in (rows.mean(0), None):
        start = theta.detach().clone()
        if direction is None:
            step(batch)  # without noise
        else:
            theta.data -= 0.01 * direction
        whole = step.engine(split.at(torch.arange(len(split)))).losses
        losses.append([whole[split.groups == k].mean().item() for k in (0, 1)])
        theta.data.copy_(start)
    for k in (0, 1):
        cost = observer.series()[f"step/R_clip/{k}"][0]
        assert cost == pytest.approx(losses[1][k] - losses[0][k], rel=1e-2)


def test_epochs_average_over_examples_and_norms_over_batches(small):
    split = small.split(GROUPS)
    step = small.step(small.method("dpsgd", split), small.network(), lr=0.0, physical=4)
    observer = settings(every=100).observer(step, split)
    parts = list(small.batches(split, 3))
    for batch in parts:
        observer.before(batch)
    observer.end_of_epoch()
    for k in (0, 1):
        together = torch.cat([step.engine(b).losses[b.groups == k] for b in parts])
        loss = observer.series()[f"epoch/loss/{k}"]
        assert loss == [pytest.approx(together.mean().item())]
        norms = [step.engine(b).stack()[b.groups == k].mean(0).norm().item() for b in parts]
        norm = observer.series()[f"epoch/gradient_norm/{k}"]
        assert norm == [pytest.approx(sum(norms) / len(norms))]


def test_between_measurements_only_examples_of_the_chosen_groups_pass_through_the_model(small):
    split = small.split([0, 1, 2] * 8)
    step = small.step(small.method("dpsgd", split), small.network(), LR)
    batch = split.at(torch.arange(24))

    def series(groups):
        observer = settings(every=None, groups=groups).observer(step, split)
        observer.before(batch)
        observer.end_of_epoch()
        return observer.series()

    everyone = series(None)
    seen = []
    hook = step.engine.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    chosen = series([2, 0])
    hook.remove()
    assert len(torch.cat(seen).unique(dim=0)) == 16
    assert set(chosen) == {name for name in everyone if not name.endswith("/1")}
    for name, column in chosen.items():
        assert column == pytest.approx(everyone[name]), name


def test_a_group_absent_from_a_batch_or_from_all_is_nan_and_no_other_is(small):
    split = small.split([0] * 9 + [2])  # one example in 2, none in 1
    step = small.step(small.method("dpsgd", split), small.network(), LR)
    observer = settings(every=1).observer(step, split)
    first, second = split.at(torch.arange(5)), split.at(torch.arange(4, 10))
    for batch in (first, second):
        observer.before(batch)
    observer.end_of_epoch()
    observer.before(first)
    observer.end_of_epoch()
    series = observer.series()
    nan = {name for name, column in series.items() if all(map(math.isnan, column))}
    assert nan == {name for name in series if name.endswith("/1")}
    alone = step.engine(split.at(torch.tensor([9]))).norms.item()
    once = [pytest.approx(alone), pytest.approx(math.nan, nan_ok=True)]
    assert series["epoch/gradient_norm/2"] == once
    assert series["step/norm_group/2"] == [pytest.approx(alone)] * 3


def test_a_measurement_does_not_depend_on_dropout(small):
    split = small.split(GROUPS)
    batch = next(small.batches(split))

    def measured(*between):
        step = small.step(small.method("dpsgd", split), small.network(*between), LR)
        observer = settings().observer(step, split)
        observer.before(batch)
        observer.end_of_epoch()
        return observer.series()

    assert measured(nn.Dropout(0.9)) == measured()


def test_gradients_that_are_not_finite_and_empty_batches_have_no_direction(small):
    split = small.split(GROUPS)
    split.inputs[0] = torch.inf
    step = small.step(small.method("dpsgd", split), small.network(), LR)
    observer = settings(eigenvalues=False).observer(step, split)
    observer.before(split.at(torch.arange(4)))
    series = observer.series()
    rows = step.engine(split.at(torch.arange(1, 4))).stack()
    assert series["step/norm_plain"] == [pytest.approx((rows.sum(0) / 4).norm().item())]
    assert math.isnan(series["step/norm_group/0"][0])
    assert math.isfinite(series["step/norm_group/1"][0])
    split = small.split(GROUPS)
    step = small.step(small.method("dpsgd", split), small.network(), LR)
    observer = settings().observer(step, split)
    observer.before(split.at(torch.arange(0)))
    observer.end_of_epoch()
    series = observer.series()
    assert series["step/norm_plain"] == series["step/R_clip/0"] == [0]
    assert math.isnan(series["step/R_dir/0"][0])
    assert math.isnan(series["epoch/loss/0"][0])
    assert math.isfinite(series["step/trace/0"][0])


@pytest.mark.slow
def test_sgd_has_neither_noise_nor_clipping(small):
    series = watched(small, "sgd")
    assert series["step/inverse_learning_rate"] == [1 / LR] * 3
    for term in ("R_noise", "R_clip", "R_mag", "R_dir"):
        assert series[f"step/{term}/0"] == [0, 0, 0]
    assert series["step/clipped_fraction"] == [0, 0, 0]


def test_dpsgd_f_is_seen_with_the_bounds_it_released_last(small):
    split = small.split(GROUPS)
    step = small.step(small.method("dpsgd_f", split), small.network(), LR)
    observer = settings(every=1, eigenvalues=False).observer(step, split)
    noise = []
    for batch in small.batches(split, 2):
        noise.append(float(step.clip.sensitivity.bound))
        observer.before(batch)
        step(batch)
    series = observer.series()
    expected = excess_risk.noise_risk(LR, torch.tensor(series["step/trace/0"]), torch.tensor(noise))
    assert noise[0] == 0.3 < noise[1]
    assert series["step/R_noise/0"] == pytest.approx(expected.tolist())


def test_two_of_three_groups_are_compared_beside_the_rest(small):
    split = small.split([0, 1, 2] * 8)
    step = small.step(small.method("sgd", split), small.network(), LR)
    batch = split.at(torch.arange(len(split)))
    observer = settings(groups=[2, 0]).observer(step, split)
    observer.before(batch)
    series = observer.series()
    assert not any(name.endswith("/1") for name in series)
    g = {k: small.expand(step.engine, split, k)[0] for k in (0, 1, 2)}
    a, b, rest = g[2].norm(), g[0].norm(), g[1].norm() / 3
    whole = sum(g.values()).norm() / 3
    bound = LR * (a**2 / 3 - b**2 / 3 - 2 / 3 * a * b - (a + b) * (rest + whole) - whole**2)
    assert series["step/bound_tran"][0] == pytest.approx(bound.item())
    assert series["step/gap_clip"] == [0]


@pytest.mark.parametrize("changes", [{"every": 0}, {"hutchinson": 1.5}, {"chunk": True}])
def test_invalid_settings_are_refused(changes):
    with pytest.raises(UserError, match=f"diagnostics.{next(iter(changes))} must be"):
        settings(**changes)


def test_a_group_without_training_examples_is_measured_as_nan(small):
    split = small.split([0, 0, 1] * 8)
    step = small.step(small.method("sgd", split), small.network(), LR)
    observer = settings(groups=[0, 2]).observer(step, split)
    observer.before(split.at(torch.arange(len(split))))
    observer.end_of_epoch()
    series = observer.series()
    assert math.isfinite(series["step/R_clip/0"][0])
    for name in ("step/R_clip/2", "step/trace/2", "epoch/loss/2", "epoch/gradient_norm/2"):
        assert math.isnan(series[name][0])
