"""Every file of conf/ composes, builds and plans, and carries what the papers say."""

import json
import re

import pytest
import torch

from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import expand
from dpbench.runs.config.search_path import file_of, groups, options
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.system.errors import UserError
from dpbench.system.paths import conf_folder, option_folders

FILES = sorted(path for folder in option_folders() for path in folder.rglob("*.yaml"))
TABLES = options("table")
QUICK = {"demo", "misalignment_table4"}
CHOICES = sorted(
    (path.parent.name, path.stem)
    for path in FILES
    if path.parent != conf_folder() and "table" not in (path.parent.name, path.parent.parent.name)
)
TABLE = "dataset.target=y dataset.features=7 dataset.groups=[all]"
IMAGES = "dataset.groups=[a,b]"
WEIGHTS = f"features.backbone=resnet18 features.checksum=sha256:{'0' * 64}"
CUSTOM = {"csv": TABLE, "hub": TABLE, "images": IMAGES, "hub_images": IMAGES}
"""What is otherwise read from the user's own data."""
# Two groups for fairlens; a small sampling rate, so that noise for an epsilon is found quickly; a
# delta below 1/n.
OWN = f"dataset=csv dataset.name=own dataset.rows=9999 dataset.classes=2 {CUSTOM['csv']}"
NEEDS = dict.fromkeys(
    [("method", "fairlens"), ("privacy", "eps1"), ("privacy", "eps3"), ("privacy", "eps8")],
    "dataset=dutch",
) | {
    ("dataset", "imagenet32"): "privacy.delta=1e-7",
    ("normalization", "cifar10"): "dataset=cifar10",
    ("features", "scattering_imagenet"): "dataset=cifar10",
    ("features", "efficientnet_lite0"): "dataset=cifar10",
    ("features", "pretrained"): WEIGHTS,
    **{
        ("features", name): f"dataset=snli dataset.part=dev dataset.tokens.vocabulary=30522 {more}"
        for name, more in {
            "minilm": "",
            "text": "features.config={model_type:bert} features.checksum=sha256:" + "0" * 64,
        }.items()
    },
    **{("dataset", name): "model=bert_tiny" for name in ("snli", "movie_reviews")},
    ("model", "text"): "model.config={model_type:bert} model.pretrained=false",
    ("temperature", "private"): "dataset=dutch",
    ("conformal", "private"): "dataset=dutch",
    ("method", "dpsgld"): "privacy=follows",
    ("privacy", "follows"): "method=dpsgld",
    ("privacy", "calibration_wine"): "dataset=wine model=regression_mlp",
    ("method", "dpsghmc"): "privacy=follows optimizer=momentum",
    ("normalization", "private_columns"): f"{OWN} dataset.bounds={{age:[0,120]}}",
    ("users", "column"): (
        f"{OWN} dataset.user=who dataset.people=999 users.column=who users.most=4"
    ),
    ("method", "dp_fedsgd"): "users=iid",
    ("method", "dp_fedavg"): "users=shards",
    **{
        ("dataset", name): f"dataset.name=mine dataset.rows=9999 dataset.classes=2 {more}"
        for name, more in CUSTOM.items()
    },
}
DATASETS = [name for group, name in CHOICES if group == "dataset"]
MODELS = [name for group, name in CHOICES if group == "model"]


def scales_of(table):
    """The names of the scales that a table declares; to parse all tables takes a second."""
    block = re.search(r"^  scales:\n((?:    .*\n|\n)+)", file_of("table", table).read_text(), re.M)
    return re.findall(r"^    (\w+):", block[1], re.M) if block else []


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
        text = file_of("table", name).read_text()
        comment = [line for line in text.splitlines() if line.startswith("#")]
        for word in ("# Source: ", "# Cost: ", "# Expect: "):
            assert any(line.startswith(word) for line in comment), (name, word)


def test_every_file_is_an_option_and_every_option_a_file():
    for group in groups():
        files = [p.stem for folder in option_folders() for p in (folder / group).glob("*.yaml")]
        assert options(group) == sorted(files)


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), [c for c in CHOICES if c[0] in {*groups()} - {"model"}])
def test_every_option_is_planned_without_data(group, name, nowhere, request):
    if group not in ("method", "privacy", "users"):
        request.getfixturevalue("no_statement")  # the accountants are asked the same of all
    needed = NEEDS.get((group, name), "")
    delta = ["privacy.delta=1e-7"] if group == "dataset" else []  # below 1/n of the largest
    run, planned = prepare(run_config([f"{group}={name}", nowhere, *needed.split(), *delta]))
    config = run.config
    assert config["choices"][group] == (f"{name}:mine" if "name=mine" in needed else name)
    assert json.loads(json.dumps(config)) == config, "not plain"
    assert planned.ledger.steps == planned.steps + planned.once.steps > 0


@pytest.fixture(scope="module")
def models():
    """Every model by name, as configured and not yet built."""
    return {name: build(compose([f"model={name}"])).model for name in MODELS}


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_model_is_planned_for_a_data_set_or_says_what_it_needs(dataset, models, nowhere):
    needed = NEEDS[("dataset", dataset)].split() if dataset in CUSTOM else []
    data = build(compose([f"dataset={dataset}", nowhere, *needed])).dataset
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
    """Those that calibrate noise to many budgets, and have siblings, are `long`."""
    lengthy = ("sign_table1", "frontier_table1", "frontier_fig1")
    mark = dict.fromkeys(lengthy, pytest.mark.long) | dict.fromkeys(QUICK, ())
    return pytest.param(name, marks=mark.get(name, pytest.mark.slow))


def runs_of(target):
    """The overrides of a target's runs, each with its first seed only: others are planned alike."""
    seeds, others = set(), set()
    for overrides in target.cells():
        seeds |= {o for o in overrides if o.startswith("seed=")}
        others.add(tuple(o for o in overrides if not o.startswith("seed=")))
    return [(*overrides, min(seeds)) for overrides in sorted(others)]


def with_each_override(runs):
    """Runs in whose overrides each of all occurs, though not each with each."""
    seen = set()
    for overrides in runs:
        if not seen.issuperset(overrides):
            seen.update(overrides)
            yield overrides


def trained(name):
    """The target of a table, unless it trains nothing that could be planned."""
    wanted = target_of(name, [])
    if not wanted.table.seeds:
        pytest.skip("it is timed or computed, and trains nothing")
    if name == "audit":
        pytest.skip("its runs are on canaries: tests/audit")
    return wanted


def plan_all(runs, nowhere):
    for overrides in runs:
        run, planned = prepare(run_config([*overrides, nowhere]))
        assert planned.steps > 0
        if "paper" in str(overrides):
            assert run.config["method"]["variant"] == "paper"


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:privacy.delta=8e-07 is above")  # ImageNet32 in bam_table1
@pytest.mark.parametrize("name", [marked(name) for name in TABLES])
def test_every_override_of_a_table_is_planned_without_data(name, nowhere, no_statement):
    plan_all(with_each_override(runs_of(trained(name))), nowhere)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:privacy.delta=8e-07 is above")
@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_a_table_is_planned_without_data(name, nowhere, no_statement):
    plan_all(runs_of(trained(name)), nowhere)


SCALES = [(name, scale) for name in TABLES for scale in scales_of(name)]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_a_scale_says_what_it_shrinks_and_does(name, scale):
    paper, wanted = target_of(name, []), target_of(name, [f"scale={scale}"])
    assert wanted.scale.description.strip(" .") == wanted.scale.description != ""
    assert wanted.changes == ()
    assert wanted.stem == f"{name}-{scale}"
    computed = ("compute", "methods") if paper.table.compute else ()
    if any(getattr(wanted.table, key) != getattr(paper.table, key) for key in computed):
        return
    if {*wanted.table.seeds} < {*paper.table.seeds}:
        return
    small, whole = (compose(next(iter(one.cells()))) for one in (wanted, paper))
    assert digest(small) != digest(whole)
    smaller_model = small["choices"]["model"] != whole["choices"]["model"]
    vectors, rarer = (
        [one["diagnostics"].get(key, 0) for one in (small, whole)]
        for key in ("hutchinson", "every")
    )
    fewer = vectors[0] < vectors[1] or rarer[0] > rarer[1]
    assert small["epochs"] < whole["epochs"] or smaller_model or fewer


@pytest.mark.long
@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_run_of_a_scale_is_planned_without_data(name, scale, nowhere, no_statement):
    plan_all(runs_of(target_of(name, [f"scale={scale}"])), nowhere)


@pytest.mark.parametrize("folder", ["Ergebnisse-für-März", "結果/run 1", "/tmp/é"])
def test_a_path_beyond_ascii_needs_no_quotes(folder):
    assert compose([f"results_dir={folder}"])["results_dir"] == folder
    assert compose([f"results_dir='{folder}'"])["results_dir"] == folder
    (run,) = expand([f"results_dir={folder}", "seed=3"])
    assert compose(run)["results_dir"] == folder
