"""Every file of conf/ composes, builds and plans, and carries what the papers say."""

import json

import pytest
import torch
from omegaconf import OmegaConf

from dpbench.config import compose as configuration
from dpbench.config.compose import compose, groups, options
from dpbench.config.overrides import expand, grammar
from dpbench.errors import UserError
from dpbench.execution.prepare import build, prepare
from dpbench.paths import conf_folder
from dpbench.records.digest import digest
from dpbench.reproduce.target import target_of

FILES = sorted(conf_folder().rglob("*.yaml"))
TABLES = sorted(path.stem for path in (conf_folder() / "table").glob("*.yaml"))
QUICK = {"demo", "misalignment_table4"}
CHOICES = sorted(
    (path.parent.name, path.stem)
    for path in FILES
    if path.parent != conf_folder() and "table" not in path.relative_to(conf_folder()).parts
)
# Two groups for fairlens; a small sampling rate, so that noise for an epsilon is found quickly; a
# delta below 1/n.
NEEDS = dict.fromkeys(
    [("method", "fairlens"), ("privacy", "eps1"), ("privacy", "eps3"), ("privacy", "eps8")],
    "dataset=dutch",
) | {
    ("dataset", "imagenet32"): "privacy.delta=1e-7",
    ("normalization", "cifar10"): "dataset=cifar10",
    ("dataset", "snli"): "model=bert_tiny",
    ("method", "dpsgld"): "privacy=follows",
    ("privacy", "follows"): "method=dpsgld",
    ("method", "dpsghmc"): "privacy=follows optimizer=momentum",
    ("method", "dp_fedsgd"): "users=iid",
    ("method", "dp_fedavg"): "users=shards",
}
DATASETS = [name for group, name in CHOICES if group == "dataset"]
MODELS = [name for group, name in CHOICES if group == "model"]


def scales_of(table):
    """The names of the scales that a table declares."""
    read = OmegaConf.load(conf_folder() / "table" / f"{table}.yaml")
    return list(read.get("table", {}).get("scales", {}))


def names(paths):
    return [str(path.relative_to(conf_folder())) for path in paths]


@pytest.fixture
def nowhere(tmp_path):
    """Overrides that make any look at the data fail; no folder may have been made at the end."""
    folder = tmp_path / "nowhere"
    yield f"data_dir={folder}"
    assert not folder.exists()


def test_every_configuration_opens_with_what_it_is():
    for path in FILES:
        first, second, *_ = [*path.read_text().splitlines(), ""]
        assert (second if first == "# @package _global_" else first).startswith("# "), path
        assert "TODO" not in path.read_text(), path


def test_every_table_opens_with_its_source_its_cost_and_the_number_to_expect():
    for name in TABLES:
        text = (conf_folder() / "table" / f"{name}.yaml").read_text()
        comment = [line for line in text.splitlines() if line.startswith("#")]
        for word in ("# Source: ", "# Cost: ", "# Expect: "):
            assert any(line.startswith(word) for line in comment), (name, word)


def test_every_file_is_an_option_and_every_option_a_file():
    for group in groups():
        files = {path.stem for path in (conf_folder() / group).glob("*.yaml")}
        assert set(options(group)) == files


@pytest.mark.parametrize(("group", "name"), [c for c in CHOICES if c[0] != "model"])
def test_every_option_is_planned_without_data(group, name, nowhere, request):
    if group not in ("method", "privacy", "users"):
        request.getfixturevalue("no_statement")  # the accountants are asked the same of all
    needed = NEEDS.get((group, name), "")
    config, _, planned = prepare([f"{group}={name}", nowhere, *needed.split()])
    assert config["choices"][group] == name
    assert json.loads(json.dumps(config)) == config, "not plain"
    assert planned.ledger.steps == planned.steps + bool(planned.statistics) > 0


@pytest.fixture(scope="module")
def models():
    """Every model by name, as configured and not yet built."""
    return {name: build(compose([f"model={name}"])).model for name in MODELS}


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_model_is_planned_for_a_data_set_or_says_what_it_needs(dataset, models, nowhere):
    data = build(compose([f"dataset={dataset}", nowhere])).dataset
    refused = {}
    for name, model in models.items():
        try:
            with torch.device("meta"):  # no weights are downloaded there
                assert list(model.build(data.shape, data.classes).parameters())
        except UserError as error:
            refused[name] = str(error)
    assert all(" needs " in sentence for sentence in refused.values())
    assert not refused.keys() & {"mlp", "logistic", "logistic_squashed"}
    assert ("cnn_tanh" in refused) == (len(data.shape) != 3)


def marked(name):
    """Those that take longest, and have siblings whose runs are planned alike, are `long`."""
    lengthy = ("sign_table1", "calibration_systems", "calibration_fig2", "calibration_fig3")
    lengthy += ("bam_fig4", "bam_fig5", "calibration_fig10", "calibration_fig11")
    mark = dict.fromkeys(lengthy, pytest.mark.long) | dict.fromkeys(QUICK, ())
    return pytest.param(name, marks=mark.get(name, pytest.mark.slow))


@pytest.mark.filterwarnings("ignore:privacy.delta=8e-07 is above")  # ImageNet32 in bam_table1
@pytest.mark.parametrize("name", [marked(name) for name in TABLES])
def test_every_run_of_a_table_is_planned_without_data(name, nowhere, no_statement):
    # Runs that differ by their seed alone are planned alike.
    wanted, seeds, others = target_of(name, []), set(), set()
    if "bench" in wanted.table or not wanted.table["seeds"]:
        pytest.skip("it is timed or computed, and trains nothing")
    if name == "audit":
        pytest.skip("its runs are on canaries: tests/audit")
    for overrides in wanted.cells():
        seeds |= {o for o in overrides if o.startswith("seed=")}
        others.add(tuple(o for o in overrides if not o.startswith("seed=")))
    assert seeds
    for overrides in sorted(others):
        config, _, planned = prepare([*overrides, min(seeds), nowhere])
        assert planned.steps > 0
        if "paper" in str(overrides):
            assert config["method"]["variant"] == "paper"


SCALES = [(name, scale) for name in TABLES for scale in scales_of(name)]


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_a_scale_says_what_it_shrinks_and_does(name, scale):
    paper, wanted = target_of(name, []), target_of(name, [f"scale={scale}"])
    assert wanted.scale.shrinks.strip(" .") == wanted.scale.shrinks != ""
    assert wanted.changes == ()
    assert wanted.stem == f"{name}-{scale}"
    if "bench" in wanted.table:
        assert wanted.table["bench"] != paper.table["bench"]
        return
    computed = ("compute", "methods") if "compute" in paper.table else ()
    if any(wanted.table[key] != paper.table[key] for key in computed):
        return
    if {*wanted.table["seeds"]} < {*paper.table["seeds"]}:
        return
    small, whole = (compose(next(iter(one.cells()))) for one in (wanted, paper))
    assert digest(small) != digest(whole)
    smaller_model = small["choices"]["model"] != whole["choices"]["model"]
    assert small["epochs"] < whole["epochs"] or smaller_model


@pytest.mark.long
@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_run_of_a_scale_is_planned_without_data(name, scale, nowhere, no_statement):
    seed, others = set(), set()
    for overrides in target_of(name, [f"scale={scale}"]).cells():
        seed = {o for o in overrides if o.startswith("seed=")}
        others.add(tuple(o for o in overrides if not o.startswith("seed=")))
    for overrides in sorted(others):
        assert prepare([*overrides, *seed, nowhere])[2].steps > 0


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


@pytest.mark.parametrize(
    ("table", "method"), [(table, method) for table in METHODS for method in METHODS[table]]
)
def test_the_paper_s_values_reach_the_run(table, method):
    protocol = PROTOCOLS[table]
    lr, bound, beside, count_noise = METHODS[table][method]
    config, run, planned = prepare([f"+table={table}", f"method={method}"])

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
    config, run, planned = prepare([*asked, "privacy.epsilon=2"])

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
    assert wanted.table["methods"] == ["dpsgd", "dpsat", "bam"]
    assert wanted.table["seeds"] == [0, 1, 2]
    assert wanted.table["spread"] == "standard deviation"
    assert [condition.label for condition in wanted.conditions] == [
        *(f"{dataset}, epsilon {e}" for dataset in ("cifar10", "cifar100") for e in (1, 2, 10)),
        "imagenet32, epsilon 10",
    ]


def test_an_option_of_the_user_wins_over_the_table_s_choice_and_has_its_settings():
    asked = ["+table=bam_table1", "dataset=imagenet32"]
    assert compose([*asked, "model.depth=10"])["model"]["depth"] == 10
    assert compose([*asked, "model=mlp"])["choices"]["model"] == "mlp"
    with pytest.raises(UserError, match=r"model.activation is not a setting"):
        compose([*asked, "model.activation=relu"])


def counts_multiplier(planned):
    """The noise multiplier of the second query, as the ledger sees it; None if there is none."""
    _, *queries = planned.step.releases
    return queries[0].mechanism.noise_multiplier if queries else None


@pytest.mark.parametrize("table", METHODS)
def test_a_table_runs_the_paper_s_methods_with_five_seeds(table):
    asked = compose([f"+table={table}"])["table"]
    assert sorted(asked["methods"]) == sorted(METHODS[table])
    assert asked["seeds"] == [0, 1, 2, 3, 4]
    assert asked["spread"] == "standard error"


def test_what_the_user_says_wins_over_the_table_whatever_the_order():
    said = ["optimizer.lr=0.3", "epochs=2", "method.bound=2.0", "dataset=dutch"]
    table = ["+table=misalignment_table4", "method=dpsgd_global"]
    for overrides in ([*table, *said], [*said, *table]):
        config = compose(overrides)
        assert config["optimizer"]["lr"] == 0.3
        assert config["epochs"] == 2
        assert config["method"]["bound"] == 2.0
        assert config["choices"]["dataset"] == "dutch"
        assert config["method"]["strict_bound"] == 50.0


def test_without_a_table_the_defaults_hold():
    config = compose([])
    assert "table" not in config
    assert config["choices"] == {
        "dataset": "digits",
        "model": "mlp",
        "method": "dpsgd",
        "privacy": "noise1",
        "optimizer": "sgd",
        "features": "none",
        "normalization": "none",
        "augmentation": "none",
        "engine": "auto",
        "diagnostics": "none",
        "schedule": "none",
        "users": "none",
        "launcher": "local",
        "tracker": "none",
    }


def test_the_settings_of_every_option_can_be_set_not_only_of_the_default_ones():
    assert (
        compose(["method=dpsgd_f", "method.count_noise_ratio=3"])["method"]["count_noise_ratio"]
        == 3
    )
    assert compose(["diagnostics=misalignment", "diagnostics.every=7"])["diagnostics"]["every"] == 7
    assert compose(["dataset=digits_unbalanced", "dataset.base.test_share=0.3"])["dataset"][
        "base"
    ] == {"_target_": "dpbench.data.digits.Digits", "test_share": 0.3}


def test_an_argument_that_the_constructor_knows_may_be_added():
    run = build(compose(["+optimizer.weight_decay=0.25"]))
    (parameter, *_) = run.model.build((4,), 2).parameters()
    assert run.optimizer([parameter]).defaults["weight_decay"] == 0.25


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["datset=digits"], "datset is not a setting: did you mean dataset"),
        (["dataset=digit"], "dataset=digit is unknown: did you mean digits"),
        (["method=dpgsd"], "method=dpgsd is unknown: did you mean dpsgd"),
        (["+table=misalignment_table6"], "did you mean misalignment_table5"),
        (["epoch=3"], "epoch is not a setting: did you mean epochs"),
        (["optimizer.Lr=3"], "optimizer.Lr is not a setting: did you mean optimizer.lr"),
        (["method=sgd", "method.bound=1"], "method.bound is not a setting"),
        (["+bath_size=3"], "bath_size is not a setting: did you mean batch_size"),
        (["++bath_size=3"], "bath_size is not a setting: did you mean batch_size"),
        (["+engine.nme=loop"], "engine.nme is not a setting: did you mean engine.name"),
        (["+diagnostics.every=3"], "diagnostics.every is not a setting"),
        (["+privacy.epsilom=3"], "privacy.epsilom is not a setting: did you mean epsilon"),
        (["+method.bond=3"], "method.bond is not a setting: did you mean bound"),
        (["method.variant=papper"], "variant=papper is unknown: did you mean paper"),
        (["~method"], "method cannot be deleted: choose an option, as method=NAME"),
        (["method=sgd,dpsgd"], "names several runs: use dpbench run -m"),
        (["seed=0,1"], "names several runs: use dpbench run -m"),
        (["table=misalignment_table4"], r"add a table with \+table=NAME"),
        (["epochs"], "an override must be KEY=VALUE, got .epochs."),
        (["dataset._target_=os.system"], "_target_='os.system' is refused"),
        (
            ["dataset=digits_unbalanced", "dataset.base._target_=os.getcwd"],
            "'os.getcwd' is refused",
        ),
        (["optimizer._target_=torch.load"], "'torch.load' is refused"),
        (["optimizer._target_=torch.optim.Nonsense"], "'torch.optim.Nonsense' is refused"),
    ],
)
def test_what_is_unknown_is_refused_with_the_nearest_names(overrides, sentence):
    with pytest.raises(UserError, match=sentence) as told:
        build(compose(overrides))
    assert "\n" not in str(told.value)


def test_a_table_s_misspelt_setting_is_refused(tmp_path, monkeypatch):
    """What a table sets is held against the chosen parts, like what a user sets."""
    broken = [{"set": {"epoch": 3}}]
    monkeypatch.setattr(configuration, "rules", lambda *_: broken)
    with pytest.raises(UserError, match="epoch"):
        compose([])


def test_a_sweep_is_every_combination_in_order():
    assert expand(["seed=0,1", "epochs=3", "method=sgd,dpsgd"]) == [
        ["seed=0", "epochs=3", "method=sgd"],
        ["seed=0", "epochs=3", "method=dpsgd"],
        ["seed=1", "epochs=3", "method=sgd"],
        ["seed=1", "epochs=3", "method=dpsgd"],
    ]


def test_a_list_is_one_value_of_a_sweep():
    assert expand(["model.widths=[3,4]", "seed=range(2)"]) == [
        ["model.widths=[3,4]", "seed=0"],
        ["model.widths=[3,4]", "seed=1"],
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        ["epochs=3", "model.widths=[3,4]", "optimizer.lr=1e-3", "ema_decay=null"],
        ["+table=bam_table1", "dataset=cifar10", "method=bam", "method.lambda_=0.1", "seed=7"],
        ["+table=calibration_table2", "dataset=digits", "table.arm=large_r", "epochs=2"],
        [
            "schedule=custom",
            "schedule.lr={_target_:dpbench.mechanism.schedules.Linear,start:1.0,end:0.5}",
        ],
        ["tracker=[csv,wandb]", "tracker.wandb.project=mine", "batch_size=${epochs}"],
        ["method=dpsgd", "method.bound=[0.1,0.2]", "method.style=layerwise"],
    ],
)
def test_values_set_in_a_copy_are_what_hydra_composes(overrides):
    with grammar():
        parsed = configuration.check(overrides)
        ours, choices = configuration._compose(parsed)
        theirs, same = configuration._compose_by_hydra(
            [str(override.input_line) for override in parsed]
        )
    assert choices == same
    assert OmegaConf.to_container(ours) == OmegaConf.to_container(theirs)
    assert OmegaConf.is_struct(ours) == OmegaConf.is_struct(theirs)


def test_runs_that_differ_in_values_alone_share_what_hydra_composes(monkeypatch):
    table = ["+table=calibration_table2", "dataset=digits"]
    first = compose([*table, "method=bam", "table.arm=small_r", "seed=0"])
    monkeypatch.setattr(
        configuration, "_compose_by_hydra", lambda _: pytest.fail("composed a second time")
    )
    second = compose(["method=bam", "seed=1", *table, "table.arm=large_r", "optimizer.lr=0.5"])
    assert (first["seed"], second["seed"], second["optimizer"]["lr"]) == (0, 1, 0.5)
    assert (first["table"]["arm"], second["table"]["arm"]) == ("small_r", "large_r")
    assert first["method"]["bound"] != second["method"]["bound"]
