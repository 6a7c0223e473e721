"""The values that the papers print reach the runs of their tables."""

import pytest
import torch

from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config

# From shared/papers/misalignment.md, not from conf/. Common: batch 256, delta 1e-6, no momentum.
PROTOCOLS = {
    "misalignment_table4": {
        "dataset": "adult", "model": "mlp", "epochs": 20, "sigma": 1.0, "steps": 20 * 92,
    },
    "misalignment_table5": {
        "dataset": "dutch", "model": "logistic_squashed", "epochs": 20, "sigma": 1.0,
        "steps": 20 * 189,
    },
    "misalignment_table2": {
        "dataset": "mnist_unbalanced", "model": "cnn_tanh", "epochs": 60, "sigma": 0.8,
        "steps": 60 * 214,
    },
    "misalignment_table3": {
        "dataset": "celeba", "model": "cnn_tanh", "epochs": 30, "sigma": 0.8, "steps": 30 * 636,
    },
}  # fmt: skip
# lr, C0, then what the method has beside; the last entry is the multiplier of the counts' noise.
METHODS = {
    "misalignment_table4": {
        "sgd": (0.01, None, {}, None),
        "dpsgd": (0.01, 0.5, {}, None),
        "dpsgd_f": (0.01, 0.5, {}, 10.0),
        "fairlens": (0.01, 0.5, {"clipping_weight": 1.0, "noise_weight": 1.0}, None),
        "dpsgd_global": (0.2, 0.5, {"strict_bound": 50.0}, None),
        "dpsgd_global_adapt": (
            0.2, 0.5, {"strict_bound": 50.0, "threshold": 1.0, "clip_learning_rate": 0.1}, 10.0,
        ),
    },
    "misalignment_table5": {
        "sgd": (0.8, None, {}, None),
        "dpsgd": (0.8, 0.1, {}, None),
        "dpsgd_f": (0.8, 0.1, {}, 10.0),
        "fairlens": (0.8, 0.1, {"clipping_weight": 1.0, "noise_weight": 1.0}, None),
        "dpsgd_global": (2.0, 0.1, {"strict_bound": 1.0}, None),
        "dpsgd_global_adapt": (
            2.0, 0.1, {"strict_bound": 50.0, "threshold": 1.0, "clip_learning_rate": 0.1}, 10.0,
        ),
    },
    "misalignment_table2": {
        "sgd": (0.01, None, {}, None),
        "dpsgd": (0.01, 1.0, {}, None),
        "dpsgd_f": (0.01, 1.0, {}, 8.0),
        "dpsgd_global": (0.2, 1.0, {"strict_bound": 100.0}, None),
        "dpsgd_global_adapt": (
            0.1, 1.0, {"strict_bound": 50.0, "threshold": 0.7, "clip_learning_rate": 0.1}, 10.0,
        ),
    },
    "misalignment_table3": {
        "sgd": (0.01, None, {}, None),
        "dpsgd": (0.01, 1.0, {}, None),
        "dpsgd_f": (0.01, 1.0, {}, 8.0),
        "dpsgd_global": (0.1, 1.0, {"strict_bound": 100.0}, None),
        "dpsgd_global_adapt": (
            0.1, 1.0, {"strict_bound": 100.0, "threshold": 0.7, "clip_learning_rate": 0.1}, 10.0,
        ),
    },
}  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("table", "method"), [(table, method) for table in METHODS for method in METHODS[table]]
)
def test_the_paper_s_values_reach_the_run(table, method):
    protocol = PROTOCOLS[table]
    lr, bound, beside, count_noise = METHODS[table][method]
    run, planned = prepare(run_config([f"+table={table}", f"method={method}"]))
    config = run.config

    assert run.dataset.name == protocol["dataset"]
    assert config["choices"]["model"] == protocol["model"]
    assert (run.epochs, run.batch_size, run.sampler) == (protocol["epochs"], 256, "poisson")
    assert run.privacy.delta == 1e-6
    assert planned.steps == protocol["steps"]
    assert planned.step.sampling.rate == protocol["epochs"] / protocol["steps"]
    assert planned.noise_multiplier == (0.0 if method == "sgd" else protocol["sigma"])
    optimizer = run.optimizer([next(iter(run.model.build(run.dataset.shape, 2).parameters()))])
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (lr, 0.0)
    assert config["method"].get("bound") == bound
    assert beside.items() <= config["method"].items()
    assert config["method"].get("variant", "corrected") == "corrected"
    assert counts_multiplier(planned) == count_noise


# From shared/papers/bam.md: model, lr, views, delta, and lambda of dpsat and of bam.
BAM = {
    "cifar10": ("resnet9", 2e-3, 16, 1e-5, {"dpsat": 0.086, "bam": 0.02}),
    "cifar100": ("resnet9", 2e-3, 16, 1e-5, {"dpsat": 0.086, "bam": 0.01}),
    "imagenet32": ("wrn16_4", 1e-3, 4, 8e-7, {"dpsat": 0.07, "bam": 0.005}),
}


@pytest.mark.filterwarnings("ignore:privacy.delta=8e-07 is above")
@pytest.mark.parametrize("method", ["dpsgd", "dpsat", "bam"])
@pytest.mark.parametrize("dataset", BAM)
def test_the_values_of_bam_reach_the_run(dataset, method):
    model, lr, views, delta, lambdas = BAM[dataset]
    asked = ["+table=bam_table1", f"dataset={dataset}", f"method={method}"]
    run, planned = prepare(run_config([*asked, "privacy.epsilon=2"]))
    config = run.config

    assert config["choices"]["model"] == model
    assert config["choices"]["optimizer"] == "nadam"
    assert (run.epochs, run.batch_size, run.sampler) == (75, 4096, "poisson")
    assert (run.privacy.epsilon, run.privacy.delta) == (2, delta)
    assert planned.noise_multiplier > 0
    assert config["optimizer"]["lr"] == lr
    assert (run.augmentation.views, run.augmentation.shift) == (views, 4)
    assert (run.augmentation.probability, run.ema_decay) == (0.5, None)
    assert config["method"]["bound"] == 1.0
    assert config["method"].get("lambda_") == lambdas.get(method)


@pytest.mark.parametrize("table", ["bam_table1", "bam_fig2", "bam_fig4", "bam_fig5", "bam_fig6"])
def test_imagenet32_has_its_wider_network_and_a_thousand_classes_in_every_target_of_bam(table):
    """The paper names WideResNet-16-4 and prints no number of parameters; this is ours."""
    run = build(compose([f"+table={table}", "dataset=imagenet32"]))
    with torch.device("meta"):
        model = run.model.build(run.dataset.shape, run.dataset.classes)
    assert (run.model.depth, run.model.width, run.dataset.classes) == (16, 4, 1000)
    assert sum(p.numel() for p in model.parameters()) == 3_008_248


def test_bam_table1_runs_the_paper_s_methods_and_budgets_with_three_seeds():
    wanted = target_of("bam_table1", [])
    assert wanted.table.methods == ["dpsgd", "dpsat", "bam"]
    assert wanted.table.seeds == [0, 1, 2]
    assert wanted.table.spread == "standard deviation"
    assert [condition.label for condition in wanted.conditions] == [
        *(f"{dataset}, epsilon {e}" for dataset in ("cifar10", "cifar100") for e in (1, 2, 10)),
        "imagenet32, epsilon 10",
    ]


def counts_multiplier(planned):
    """The noise multiplier of the second query, as the ledger sees it; None if there is none."""
    _, *queries = planned.step.releases
    return queries[0].mechanism.noise_multiplier if queries else None


@pytest.mark.parametrize("table", METHODS)
def test_a_table_runs_the_paper_s_methods_with_its_five_seeds_at_least(table):
    asked = compose([f"+table={table}"])["table"]
    assert sorted(asked["methods"]) == sorted(METHODS[table])
    assert asked["seeds"] == list(range(max(5, len(asked["seeds"]))))
    assert asked["published_runs"] == 5
    assert asked["spread"] == "standard error"


BUDGETS = {
    "calibration_mnist": ["+table=calibration_table2", "dataset=mnist", "table.arm=small_r"],
    "calibration_cifar10": ["+table=calibration_table2", "dataset=cifar10", "table.arm=small_r"],
    "calibration_snli": ["+table=calibration_table2", "dataset=snli", "table.arm=small_r"],
    "calibration_california": [
        *("+table=calibration_fig10", "dataset=california", "table.arm=small_r")
    ],
    "calibration_wine": ["+table=calibration_fig10", "dataset=wine", "table.arm=small_r"],
    "bam_imagenet32": ["+table=bam_table1", "dataset=imagenet32", "method=bam"],
    "noise1": ["+table=misalignment_table4"],
    "noise08": ["+table=misalignment_table2"],
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_of_a_paper_is_that_of_its_table(name):
    budget, of_table = (compose(one)["privacy"] for one in ([f"privacy={name}"], BUDGETS[name]))
    assert budget | {"accountant": of_table["accountant"]} == of_table


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2", "3", "8", "10"])
def test_a_budget_named_by_its_epsilon_has_it(epsilon):
    privacy = compose([f"privacy=eps{epsilon}"])["privacy"]
    assert (privacy["epsilon"], privacy["delta"]) == (float(epsilon), 1e-5)
