import math

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.history import ADDED_TO_METHOD
from dpbench.runs.config.settings import SCIENTIFIC, SETTINGS, is_scientific
from dpbench.runs.records.digest import digest, scientific
from dpbench.runs.records.reading import load
from tests.runs.records.plain_record import PLAIN, record

CARRIED_OUT = {
    "engine=loop",
    "physical_batch_size=7",
    "channels_last=true",
    "device=cpu",
    "threads=2",
    "jobs=2",
    "launcher=slurm",
    "tracker=[csv,wandb]",
    "tracker_curves=true",
    "data_dir=elsewhere",
    "results_dir=elsewhere",
    "checkpoint_minutes=3",
    "again=true",
    "save_model=true",
}
SCIENCE = [
    "dataset=digits_unbalanced",
    "dataset.test_share=0.3",
    "model=logistic",
    "model.widths=[3]",
    "method=dpsgd_f",
    "method.bound=0.3",
    "method.variant=paper",
    "privacy=eps8",
    "privacy.delta=1e-7",
    "optimizer.lr=0.3",
    "optimizer.momentum=0.9",
    "sampler=shuffled",
    "epochs=3",
    "batch_size=64",
    "precision=bf16",
    "sums=tf32",
    "seed=1",
    "diagnostics=misalignment",
    "augmentation=shifts_flips",
    "ema_decay=0.99",
    "validation=0.2",
    "schedule=bound_switch",
    "method.clip=normalise",
    "method.style=layerwise",
]


@pytest.fixture(scope="module")
def default():
    return compose([])


@pytest.mark.parametrize("override", sorted(CARRIED_OUT))
def test_how_a_run_is_carried_out_leaves_its_name_alone(override, default):
    assert digest(compose([override])) == digest(default)
    assert not is_scientific(override)


@pytest.mark.parametrize("override", SCIENCE)
def test_scientific_settings_change_the_name_of_a_run(override, default):
    assert digest(compose([override])) != digest(default)
    assert is_scientific(override)
    assert is_scientific(f"++{override}")


def test_every_setting_is_known_to_matter_or_not(default):
    """A new setting must be put on one of the two sides."""
    carried_out = {override.split("=")[0] for override in CARRIED_OUT}
    assert set(default) - {"choices"} <= {*SCIENTIFIC, *carried_out}
    assert not carried_out & {*SCIENTIFIC}


def test_names_of_runs_never_change_by_the_order_or_spelling_of_settings():
    assert digest(PLAIN) == "a8f75cc91bd07d02"
    whole = {**PLAIN, "optimizer": {"lr": 1}}
    assert digest(whole) == digest({**PLAIN, "optimizer": {"lr": 1.0}})
    assert digest(whole) != digest({**PLAIN, "optimizer": {"lr": 1.5}})
    assert digest(dict(reversed(PLAIN.items()))) == digest(PLAIN)


def test_parts_that_older_records_do_not_have_leave_the_name_alone_where_they_are_nothing(default):
    later = {name for name, setting in SETTINGS.items() if setting.omitted}
    older = {key: value for key, value in default.items() if key not in later}
    older["choices"] = {k: v for k, v in default["choices"].items() if k not in later}
    assert older.keys() != default.keys()
    assert digest(older) == digest(default)
    assert digest({**older, "ema_decay": 0}) != digest(default)


LATER = [(name, setting) for name, usual in ADDED_TO_METHOD.items() for setting in usual]


@pytest.mark.parametrize(("name", "setting"), LATER)
def test_a_setting_that_came_later_has_a_name_where_it_is_not_what_it_had_been(name, setting):
    config = compose([f"method={name}", "users=iid"])
    assert config["method"][setting] == ADDED_TO_METHOD[name][setting]
    before = {**config, "method": {k: v for k, v in config["method"].items() if k != setting}}
    assert digest(config) == digest(before)
    other = {"variant": "paper", "local_batch_size": 3}[setting]
    changed = compose([f"method={name}", "users=iid", f"method.{setting}={other}"])
    assert digest(changed) != digest(config)


@pytest.mark.parametrize("name", ["adult", "dutch"])
def test_the_usual_groups_of_a_data_set_are_in_no_name_and_in_no_record(name):
    config = compose([f"dataset={name}"])
    assert config["dataset"]["group"] == "sex"
    before = {k: v for k, v in config["dataset"].items() if k != "group"}
    assert scientific(config)["dataset"] == before
    assert digest(config) == digest({**config, "dataset": before})
    other = compose([f"dataset={name}", f"dataset.group=[sex,{OTHER[name]}]"])
    assert scientific(other)["dataset"] == {**before, "group": ["sex", OTHER[name]]}
    assert digest(other) != digest(config)


OTHER = {"adult": "race", "dutch": "country_birth"}


@pytest.mark.parametrize(
    ("name", "setting", "usual", "other"),
    [
        ("wrn16_4", "order", 0, 3),
        ("wrn16_4", "scale_norm", False, True),
        ("resnet9", "scale_norm", False, True),
    ],
)
def test_a_later_setting_of_a_network_is_in_no_name_where_it_is_as_ever(
    name, setting, usual, other
):
    config = compose([f"model={name}"])
    assert config["model"][setting] == usual
    before = {k: v for k, v in config["model"].items() if k != setting}
    assert setting not in scientific(config)["model"]
    assert digest(config) == digest({**config, "model": before})
    changed = compose([f"model={name}", f"model.{setting}={other}"])
    assert scientific(changed)["model"][setting] == other
    assert digest(changed) != digest(config)


def test_a_local_batch_of_all_names_no_run_of_dp_fedsgd_and_still_those_of_dp_fedavg():
    fed = ["method=dp_fedavg", "users=iid"]
    whole, ten = (compose([*fed, f"method.local_batch_size={b}"]) for b in ("null", 10))
    without = {k: v for k, v in whole["method"].items() if k != "local_batch_size"}
    assert len({digest(config) for config in (whole, ten, {**whole, "method": without})}) == 3


def test_a_record_comes_back_as_it_was_saved_nan_and_infinity_too(tmp_path):
    saved = record()
    path = saved.save(tmp_path)
    assert path == tmp_path / "runs" / f"{digest(PLAIN)}.json"
    back = load(path)
    assert back.json() == saved.json()
    assert math.isnan(back.metrics["test/loss"])
    assert back.metrics["test/loss/3"] == back.privacy["rdp"] == math.inf
    assert math.isnan(back.history["train/loss"][1])
    assert back.diagnostics["step/R/0"] == [-math.inf]
    assert back.digest == path.stem


def test_a_record_contains_no_paths_and_a_notebook_shows_it_in_one_line(tmp_path):
    assert "somebody" not in record().save(tmp_path).read_text()
    assert repr(record()) == "<Record of digits, logistic, dpsgd, seed 0: complete>"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_record_counts_as_missing(share, tmp_path):
    path = record().save(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert load(path) is None
