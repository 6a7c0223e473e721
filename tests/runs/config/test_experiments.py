"""`+experiment=NAME`: a file that stands for overrides, and may do no more."""

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.experiments import overrides_of, with_experiment
from dpbench.runs.config.search_path import options, searching
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.system.errors import UserError


@pytest.fixture
def mine(tmp_path):
    """mine(text): an added folder with the experiment `mine`."""

    def write(text):
        (tmp_path / "experiment").mkdir(exist_ok=True)
        (tmp_path / "experiment/mine.yaml").write_text(text)
        return tmp_path

    return write


TEXT = """\
# @package _global_
defaults:
  - override /method: dpsgd_f
  - override /optimizer: adam
  - _self_
epochs: 3
optimizer: {lr: 1e-3, betas: [0.5, 0.9]}
batch_size: ${epochs}
"""


def test_an_experiment_is_the_run_of_its_overrides(mine):
    with searching([mine(TEXT)]):
        given = with_experiment(["+experiment=mine", "seed=4"])
        assert given == [
            *("method=dpsgd_f", "optimizer=adam", "epochs=3"),
            *("optimizer.lr=0.001", "optimizer.betas=[0.5,0.9]", "batch_size=${epochs}", "seed=4"),
        ]
        config = compose(given)
    assert (config["batch_size"], config["optimizer"]["betas"]) == (3, [0.5, 0.9])
    same = [*given[:5], "batch_size=3", "seed=4"]
    assert digest(config) == digest(compose(same))


def test_what_the_command_line_says_takes_precedence(mine):
    with searching([mine(TEXT)]):
        given = with_experiment(["demo", "method=bam", "+experiment=mine", "epochs=1,2"])
    assert given[:2] == ["demo", "method=bam"]
    assert [one for one in given if one.startswith(("method", "epochs"))] == [
        *("method=bam", "epochs=1,2")
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("results_dir: /tmp/x", "cannot set results_dir: give it on the command line"),
        ("launcher: {setup: [rm]}", "cannot set launcher.setup"),
        ("dataset: {file: /etc/passwd}", "cannot set dataset.file"),
        ("defaults: [override /tracker: wandb]", "cannot set tracker"),
        ("defaults: [other]", "other is refused: its defaults list chooses options"),
        ("defaults: [{dataset: adult}]", "is refused: its defaults list chooses options"),
        ("epochs: ${oc.env:HOME}", "an interpolation may name another setting"),
        ("- a", "must be a mapping of settings"),
        ("epochs: [", "is not valid YAML"),
    ],
)
def test_a_file_may_set_no_more_than_the_settings_of_a_run(mine, text, named):
    with searching([mine(text)]), pytest.raises(UserError, match=named.replace("[", r"\[")):
        overrides_of("mine")


def test_a_sweep_over_experiments_is_left_to_it():
    words = ["+experiment=a,b", "seed=0,1"]
    assert with_experiment(words) == words
    with pytest.raises(UserError, match="names several runs: use dpbench run -m"):
        compose(words)


@pytest.mark.parametrize("target", ["os.system", "builtins.eval"])
def test_a_target_is_refused_as_on_the_command_line(mine, target):
    with (
        searching([mine(f"optimizer: {{_target_: {target}}}")]),
        pytest.raises(UserError, match=target),
    ):
        run_of(run_config(with_experiment(["+experiment=mine"])))


@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_composes(name):
    assert compose(with_experiment([f"+experiment={name}"]))["epochs"] > 0
