"""RaCO: its Lagrangian and dual ascent by hand, its state, and what it refuses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.training.trainer import fit
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.method import Inapplicable, Method
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.raco import MIN_SHARE, raco
from dpbench.system.errors import UserError
from tests.problems import Made, problem
from tests.step.methods.raco_parts import (
    CLASSES,
    EXPECTED,
    GROUPS,
    after,
    answer_of,
    constraints,
    made,
    seam,
    unequal,
)


def cell_of(constraint: str, label: int, group: int) -> int:
    return group if constraint == "demographic_parity" else label * GROUPS + group


def peers_of(constraint: str, cell: int) -> list[int]:
    """The cells that a cell is compared with: other groups, of the same label if there is one."""
    first = 0 if constraint == "demographic_parity" else cell // GROUPS * GROUPS
    return [other for other in range(first, first + GROUPS) if other != cell]


def violations(constraint: str, histogram: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """As the definition has it, one cell and one class at a time [M, K]."""
    rows = []
    for cell in range(len(histogram)):
        peers = peers_of(constraint, cell)
        others = [sum(histogram[peer, k] for peer in peers) for k in range(CLASSES)]
        size = sum(shares[peer] for peer in peers)
        rows.append(
            torch.stack(
                [h / shares[cell] - o / size for h, o in zip(histogram[cell], others, strict=True)]
            )
        )
    return torch.stack(rows)


def losses_by_hand(method: Method, constraint: str, engine, batch: Batch):
    """The soft histogram of each example and its loss, from one pass each."""
    for i in range(len(batch)):
        outputs = engine.model(batch.inputs[i : i + 1])
        loss = cross_entropy(outputs, batch.targets[i : i + 1])[0]
        soft = (outputs[0] / method.gradient.temperature).softmax(0)
        yield cell_of(constraint, int(batch.targets[i]), int(batch.groups[i])), soft, loss


@constraints
@pytest.mark.parametrize("engine", ["loop", "vmap", "ghost"])
def test_gradients_are_of_the_loss_and_weighted_predictions(step_of, batch_of, constraint, engine):
    method = unequal(made(constraint=constraint))
    step, batch = step_of(method, engine=engine), batch_of(7)
    gradients, parameters = seam(method, step, batch), step.engine.parameters
    duals, shares = method.gradient.duals.values, method.gradient.duals.shares
    assert duals.max() > 0.2
    rows = []
    for cell, soft, loss in losses_by_hand(method, constraint, step.engine, batch):
        penalty = 0.0
        for m in range(len(duals)):
            peers = peers_of(constraint, m)
            weight = (m == cell) / shares[m] - (cell in peers) / sum(shares[p] for p in peers)
            penalty = penalty + sum(duals[m, k] * weight * soft[k] for k in range(CLASSES))
        rows.append(parameters.gradient(loss + penalty))
    assert torch.allclose(gradients.stack(), torch.stack(rows), rtol=1e-8, atol=1e-10)
    assert torch.allclose(gradients.losses, step.engine(batch).losses)


@constraints
def test_the_sum_of_gradients_is_that_of_the_lagrangian(step_of, batch_of, constraint):
    """sum_i loss_i/B + sum lambda v(H), with H of the batch and the released sizes of cells."""
    method = unequal(made(constraint=constraint))
    step, batch = step_of(method), batch_of(7)
    histogram, total = torch.zeros(method.gradient.duals.cells, CLASSES, dtype=torch.float64), 0.0
    for cell, soft, loss in losses_by_hand(method, constraint, step.engine, batch):
        indicator = torch.zeros(method.gradient.duals.cells, 1, dtype=torch.float64)
        indicator[cell] = 1
        histogram, total = histogram + indicator * soft / EXPECTED, total + loss / EXPECTED
    duals = method.gradient.duals
    value = total + (duals.values * violations(constraint, histogram, duals.shares)).sum()
    expected = step.engine.parameters.gradient(value)
    summed = seam(method, step, batch).weighted_sum(torch.ones(7, dtype=torch.float64))
    assert torch.allclose(summed / EXPECTED, expected, rtol=1e-8, atol=1e-10)


@constraints
@pytest.mark.parametrize("rates", ["soft", "hard"])
def test_the_histogram_counts_predictions_by_cell(step_of, batch_of, constraint, rates):
    method = made(constraint=constraint, rates=rates)
    step, batch = step_of(method), batch_of(9)
    expected = torch.zeros(method.gradient.duals.cells, CLASSES, dtype=torch.float64)
    for cell, soft, _ in losses_by_hand(method, constraint, step.engine, batch):
        if rates == "hard":
            expected[cell, int(soft.argmax())] += 1
        else:
            expected[cell] += soft.detach()
    assert torch.allclose(answer_of(method, step, batch), expected)


@constraints
def test_duals_ascend_by_what_each_constraint_is_violated(constraint):
    method = made(constraint=constraint, dual_bound=0.3)
    cells, draw = method.gradient.duals.cells, torch.Generator().manual_seed(0)
    duals, sizes, ours = torch.zeros(cells, CLASSES, dtype=torch.float64), [], method.gradient.duals
    for _ in range(6):
        counts = 5 * torch.rand(cells, CLASSES, dtype=torch.float64, generator=draw) - 0.5
        sizes.append(counts.sum(1) / EXPECTED)
        shares = (sum(sizes) / len(sizes)).clamp(min=MIN_SHARE)
        violation = violations(constraint, counts / EXPECTED, shares)
        for m in range(cells):
            for k in range(CLASSES):
                ascent = 0.5 * (max(-1.0, min(1.0, float(violation[m, k]))) - 0.05)
                duals[m, k] = max(0.0, min(0.3, float(duals[m, k]) + ascent))
        ours = ours.updated(counts.flatten() / EXPECTED)
        assert torch.allclose(ours.values, duals)
        assert torch.allclose(ours.weights(duals), method_weights(constraint, duals, shares))
    assert len({*duals.flatten().tolist()}) > 2


def method_weights(constraint: str, duals: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """The derivative of sum lambda v(H) in H, by torch."""
    histogram = torch.zeros_like(duals, requires_grad=True)
    (duals * violations(constraint, histogram, shares)).sum().backward()
    return histogram.grad


def test_predictions_without_a_preferred_group_violate_nothing():
    method = after(made(), [4.0, 2.0, 2.0] * 3)
    assert method.gradient.duals.values.tolist() == [[0.0] * 3] * 3


@given(st.lists(st.floats(-1e30, 1e30), min_size=9, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_no_answer_moves_the_duals_out_of_their_range_or_the_weights_to_infinity(answer):
    duals = after(made(), answer).gradient.duals
    assert ((duals.values >= 0) & (duals.values <= 2)).all()
    assert duals.weights(duals.values).abs().max() <= 2 * 3 / MIN_SHARE


@pytest.mark.filterwarnings("ignore:engine=ghost.*one by one")  # of two engines on one model
def test_views_of_an_example_are_averaged(batch_of):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(5, CLASSES).double()
    flat, method = batch_of(6), unequal(made())
    views = Batch(flat.inputs.view(3, 2, 5), flat.targets[:3], flat.groups[:3])
    one, two = (make_engine("auto", model, cross_entropy, b, k) for k, b in ((1, flat), (2, views)))
    doubled = Batch(flat.inputs, *(t[:3].repeat_interleave(2) for t in (flat.targets, flat.groups)))
    state = ReleasedState(1, 2, None)
    each = method.gradient(one, doubled, method.clip, state)
    both = method.gradient(two, views, method.clip, state)
    assert torch.allclose(both.stack(), each.stack().view(3, 2, -1).mean(1))
    assert torch.allclose(both.losses, each.losses.view(3, 2).mean(1))
    assert torch.allclose(both.counts * 2, each.counts)


def test_duals_and_sizes_come_back_from_a_checkpoint(step_of, batch_of):
    method = made()
    steps = [step_of(method) for _ in range(2)]
    for seed in range(3):
        steps[0](batch_of(7, seed=seed))
    assert sorted(steps[0].state_dict()["seam"]["duals"]) == ["shares", "steps", "values"]
    steps[1].load_state_dict(steps[0].state_dict())
    for step in steps:
        step(batch_of(7, seed=9))
        step(batch_of(7, seed=10))
    assert torch.equal(*(step.engine.parameters.theta for step in steps))
    one, other = (step.gradient.duals for step in steps)
    assert torch.equal(one.values, other.values)
    assert one.values.max() > 0
    back = restore_state(method.gradient, state_of(steps[0].gradient), torch.device("cpu"))
    assert torch.equal(back.duals.weights(one.values), one.weights(one.values))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"constraint": "parity"}, "method.constraint"),
        ({"rates": "firm"}, "method.rates"),
        ({"slack": 1.1}, "method.slack"),
        ({"slack": -0.1}, "method.slack"),
        ({"dual_learning_rate": 0}, "method.dual_learning_rate"),
        ({"dual_bound": 0}, "method.dual_bound"),
        ({"temperature": 0}, "method.temperature"),
        ({"histogram_noise_ratio": 0}, "noise multiplier"),
    ],
)
def test_settings_out_of_range_are_refused(changes, why):
    with pytest.raises(UserError, match=why):
        made(**changes)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"groups": ("all",)}, "compares groups"),
        ({"task": "regression", "classes": 1}, "predicted classes"),
    ],
)
def test_data_without_groups_or_classes_are_refused(changes, why):
    dataset = Made(**changes)
    with pytest.raises(Inapplicable, match=why):
        raco(0.5, "demographic_parity", 0.05, 0.5, 2.0, "soft", 0.5, 5.0).bind(problem(dataset))


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.data
@pytest.mark.parametrize(
    ("constraint", "gap", "most"),
    [
        ("demographic_parity", "demographic_parity_difference", 0.4),
        ("equalized_odds", "equalized_odds_difference", 0.7),
    ],
)
def test_the_gap_shrinks_at_the_same_epsilon(data_folder, constraint, gap, most):
    usual = ["dataset=dutch", "model=logistic", "privacy=eps3", "batch_size=512", "epochs=10"]
    usual += ["method.bound=3", "optimizer.lr=0.2"]
    gaps, epsilons = [], []
    for method in (["method=dpsgd"], ["method=raco", f"method.constraint={constraint}"]):
        record = fit(build(compose([*usual, *method])), data_folder, quiet=True)
        gaps.append(record.metrics[f"test/{gap}"])
        epsilons.append(record.privacy["rdp"])
        assert record.metrics["test/accuracy"] > 0.75
    assert epsilons == pytest.approx([3.0, 3.0], rel=0.01)
    assert gaps[1] < most * gaps[0]
