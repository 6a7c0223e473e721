import json
import shlex
from pathlib import Path

import pytest

from dpbench.cli.main import main
from dpbench.runs.config.compose import compose
from dpbench.runs.config.literals import literal
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.rerun import CommandBuilder, overrides_of, record_named
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import read
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

RUNS = [
    [],
    ["seed=3"],
    ["dataset=dutch", "model=logistic", "method=dpsgd_f", "privacy=eps3"],
    ["dataset=digits", "method=bam", "optimizer=adam", "optimizer.lr=0.25", "epochs=2"],
    ["method=dpsgd_f", "method.variant=paper"],
    ["method=dpsgd", "method.clip=automatic", "method.style=layerwise"],
    ["privacy=eps1", "privacy.delta=1e-6", "privacy.accountant=pld"],
    ["model.widths=[32,16]", "dataset.test_share=0.3"],
    ["schedule=cosine", "diagnostics=bias"],
    ["users=shards", "users.each=3", "batch_size=20"],
    ["validation=0.2", "ema_decay=0.99", "precision=bf16", "sampler=shuffled"],
    ["dataset=cifar10", "model=resnet9", "augmentation=standard", "optimizer=nadam"],
    ["+table=misalignment_table4", "dataset=adult", "method=dpsgd_global"],
    ["temperature=private", "temperature.share=0.3", "temperature.parameters=2"],
    ["conformal=private", "conformal.coverage=0.95"],
]


@pytest.fixture(scope="module")
def command():
    return CommandBuilder()


@pytest.mark.parametrize("overrides", RUNS, ids=" ".join)
def test_the_command_makes_the_same_run(command, overrides):
    if "augmentation=standard" in overrides:
        names = options("augmentation")
        overrides = [
            o.replace("standard", next(n for n in names if n != "none")) for o in overrides
        ]
    config = compose(overrides)
    said = shlex.split(command(Record(config, {}, {}, {}, "complete").config))
    assert said[:2] == ["dpbench", "run"]
    assert digest(compose(said[2:])) == digest(config)


def test_a_command_says_what_is_unusual_and_a_text_like_an_interpolation_stays_a_text(command):
    config = compose(["seed=3"])
    assert command(config) == "dpbench run dataset=digits model=mlp method=dpsgd seed=3"
    records = Path(__file__).parents[3] / "results/tables/calibration_table2-part.records.jsonl"
    configs = [json.loads(line)["config"] for line in records.read_text().splitlines()]
    (config, *_) = [c for c in configs if c["choices"]["schedule"] == "mixup"]
    said = shlex.split(command(config))
    assert "schedule=bound_switch" in said
    assert digest(compose(said[2:])) == digest(config)
    config = compose([])
    config["sampler"] = "${oc.env:HOME}"
    said = shlex.split(command(config))
    assert compose(said[2:])["sampler"] == "${oc.env:HOME}"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c["choices"].update(method="gone"),
        lambda c: c["choices"].update(method="dpsgd; rm -rf /"),
        lambda c: c["choices"].update(method="$(id)"),
        lambda c: c["method"].pop("bound"),
        lambda c: c["dataset"].update(name={3: "a"}),
    ],
)
def test_no_command_where_none_gives_the_record(command, spoil):
    config = compose([])
    spoil(config)
    with pytest.raises(UserError, match="removed or changed"):
        command(config)


CALL = {"_target_": "dpbench.records.record.pd.read_pickle", "filepath_or_buffer": "F"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c.update(schedule={"bound": 1.0, "lr": CALL, "noise": 1.0}),
        lambda c: c["optimizer"].update(lr=CALL),
        lambda c: c["optimizer"].update(betas=[[CALL]]),
        lambda c: c["method"].update(_target_="shutil.copyfile"),
        lambda c: c["method"].update(_target_="dpbench.data.digits.Digits"),
        lambda c: c["model"].update(_args_=["F"]),
        lambda c: c["model"].update(_recursive_=False),
        lambda c: c["dataset"].update(_partial_=True),
        lambda c: c.update(diagnostics=CALL),
    ],
)
def test_no_command_and_the_reason_where_a_record_asks_for_more_than_settings(command, spoil):
    config = compose([])
    spoil(config)
    with pytest.raises(UserError, match=" is refused"):
        command(config)


@pytest.mark.parametrize(
    "value",
    [0, 1.5, 1e-7, True, None, "abc", "null", "a b", "x=y,z", "1", "", [1, [2.0, "a"]], {"a": [1]}],
)
def test_a_value_in_hydras_grammar_is_read_back(value):
    found = compose([f"optimizer.lr={literal(value)}"])["optimizer"]["lr"]
    assert (found, type(found)) == (value, type(value))


@pytest.fixture
def made(tmp_path):
    """The path of a record that was made with an engine and in parts that are no defaults."""
    overrides = ["epochs=1", "model=logistic", "engine=loop", "physical_batch_size=100"]
    return load_or_run(run_config([*overrides, f"results_dir={tmp_path / 'results'}"]), quiet=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("by", ["path", "digest"])
def test_a_record_reruns_itself_to_the_bit(made, by, tmp_path, monkeypatch, capsys):
    results = made.parents[1]
    if by == "path":
        named, results = [f"record={made}"], tmp_path / "again"
    else:
        named = [f"record={made.stem}", "again=true"]
    monkeypatch.setattr("sys.argv", ["dpbench", "run", *named, f"results_dir={results}"])
    before = read(made)
    main()
    again = read(Path(capsys.readouterr().out.strip()))
    assert again.digest == before.digest
    assert again.metrics == before.metrics
    assert again.provenance["engine"] == "loop"


def test_a_record_that_is_not_there_is_refused(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="record=0123: there is no record of that digest"):
        record_named("0123", tmp_path)
    with pytest.raises(UserError, match=r"record=.*none\.json"):
        record_named(str(tmp_path / "none.json"), tmp_path)


def test_a_record_with_targets_of_its_own_is_refused(made):
    record = read(made)
    record.config["model"]["_target_"] = "os.system"
    with pytest.raises(UserError, match=r"os\.system"):
        overrides_of(record)
