"""What a user types and reads. Most commands run in this process, which saves importing torch."""

import json
import math
import os
import re
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

import dpbench
from dpbench.cli.main import COMMANDS, main
from dpbench.records.record import SCHEMA

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command: exit code, and lines of stdout and of stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpbench", *map(str, arguments)])
        code = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                main()
            except SystemExit as end:
                code = end.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out.splitlines(), err=err.splitlines())

    return run


def process(*arguments, **environment):
    """The same through `python -m dpbench`, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "dpbench", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return SimpleNamespace(
        code=done.returncode, out=done.stdout.splitlines(), err=done.stderr.splitlines()
    )


@pytest.fixture
def nowhere(tmp_path):
    """Overrides to folders that are not there, and must not be there afterwards."""
    data, results = tmp_path / "data", tmp_path / "results"
    yield f"data_dir={data}", f"results_dir={results}"
    assert not data.exists()
    assert not results.exists()


def refused(done, sentence):
    assert (done.code, done.out) == (2, [])
    (line,) = done.err
    assert line.startswith("dpbench: ")
    assert sentence in line


REFUSED = [
    ("datset=digits", "datset is not a setting: did you mean dataset"),
    ("dataset=digit", "dataset=digit is unknown: did you mean digits"),
    ("dataset=adult epoch=3", "epoch is not a setting: did you mean epochs"),
    ("dataset=adult method=dpgsd", "method=dpgsd is unknown: did you mean dpsgd"),
    ("engine=gost", "engine=gost is unknown: did you mean ghost"),
    ("engine.name=gost", "engine=gost is unknown: did you mean ghost"),
    ("sampler=poison", "sampler=poison is unknown: did you mean poisson"),
    ("method.variant=papper", "variant=papper is unknown: did you mean paper"),
    ("model.activation=tahn", "activation=tahn is unknown: did you mean tanh"),
    ("privacy.accountant=prv", "privacy.accountant=prv is unknown: choose from gdp, pld, rdp"),
    ("privacy.accountant=gdp", "privacy.accountant=gdp is an approximation"),
    ("+bath_size=3", "bath_size is not a setting: did you mean batch_size"),
    ("+table=misalignment_table6", "did you mean misalignment_table5"),
    ("dataset._target_=os.system", "_target_='os.system' is refused"),
    ("privacy.noise_multiplier=0", "privacy.noise_multiplier must be a positive number, got 0."),
    ("privacy.noise_multiplier=-1", "privacy.noise_multiplier must be a positive number, got -1."),
    (
        "privacy.noise_multiplier=nan",
        "privacy.noise_multiplier must be a number or follows or null",
    ),
    ("privacy.noise_multiplier=a", "privacy.noise_multiplier must be a number or follows or null"),
    ("privacy.noise_multiplier=null", "either noise_multiplier or epsilon"),
    ("privacy.epsilon=1", "either noise_multiplier or epsilon"),
    ("privacy=eps3 privacy.epsilon=0", "privacy.epsilon must be a positive number, got 0."),
    ("privacy.delta=0", "privacy.delta must be a number between 0 and 1, got 0."),
    ("privacy.delta=1", "privacy.delta must be a number between 0 and 1, got 1."),
    ("privacy.delta=-0.1", "privacy.delta must be a number between 0 and 1, got -0.1."),
    ("privacy.delta=small", "privacy.delta must be a number, got 'small'."),
    (
        "privacy=eps1 method=dpsgd_global_adapt method.count_noise_multiplier=0.01 dataset=dutch",
        "no noise multiplier reaches epsilon=1.0",
    ),
    ("method.bound=0", "the clipping bound must be a number from 1e-12 to 1e+12, got 0."),
    ("method.bound=-1", "the clipping bound must be a number from 1e-12 to 1e+12, got -1."),
    ("batch_size=1439", "batch_size=1439 is larger than the 1438 training examples"),
    ("batch_size=0", "batch_size must be a whole number from 1, got 0."),
    ("batch_size=null", "batch_size must be a whole number from 1, got None."),
    ("method=fairlens", "fairlens is defined for exactly 2 groups and digits has 10"),
    ("method=fairlens dataset=dutch physical_batch_size=9", "leave physical_batch_size unset"),
    ("model=cnn_tanh dataset=adult", "model=cnn_tanh needs images"),
    ("model.widths=[-1]", "each of model.widths must be a whole number from 1, got -1."),
    ("optimizer.lr=-1", "model or optimizer cannot be built: Invalid learning rate: -1"),
    ("optimizer.lr=fast", "optimizer.lr must be a number, got 'fast'."),
    ("+optimizer.momntum=0.9", "optimizer.momntum is not a setting: did you mean momentum"),
    ("epochs=0", "epochs must be a whole number from 1, got 0."),
    ("epochs=1.5", "epochs must be a whole number from 1, got 1.5."),
    ("epochs=abc", "epochs must be a whole number from 1, got 'abc'."),
    ("epochs=true", "epochs must be a whole number from 1, got True."),
    ("epochs=null", "epochs must be a whole number from 1, got None."),
    ("seed=-1", "seed must be a whole number from 0, got -1."),
    ("seed=0.5", "seed must be a whole number from 0, got 0.5."),
    ("physical_batch_size=0", "physical_batch_size must be a whole number from 1, got 0."),
    ("threads=0", "threads must be a whole number from 1 to "),
    ("jobs=two", "jobs must be a whole number from 1 to "),
    ("again=maybe", "again must be true or false, got 'maybe'."),
    ("results_dir=null", "results_dir must be the name of a folder, got None."),
    ("data_dir=5", "data_dir must be the name of a folder, got 5."),
    ("method=sgd,dpsgd", "method=sgd,dpsgd names several runs: use dpbench run -m."),
    ("-m seed=0,x", "seed must be a whole number from 0, got 'x'."),
    ("-m method=sgd,dpgsd", "method=dpgsd is unknown: did you mean dpsgd"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=[words for words, _ in REFUSED])
def test_a_run_that_cannot_be_is_refused_in_one_sentence(words, sentence, command, nowhere):
    refused(command("run", *nowhere, *words.split()), sentence)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("frobnicate", "frobnicate is not a command: choose from audit, bench, data, epsilon"),
        ("rum", "rum is not a command: did you mean run?"),
        ("epsilon epoch=3", "epoch is not a setting: did you mean epochs"),
        ("epsilon dataset=adult,dutch", "names several runs"),
        ("search", "search needs a range: batch_size=64,256 or"),
        ("search optimizer.lr=interval(1,0)", "the first bound of interval(1,0) must be below"),
        ("list datasets", "datasets is unknown: did you mean dataset"),
        ("data digit", "data set digit is unknown: did you mean digits"),
        ("reproduce", "reproduce needs a table: audit, bam_fig2"),
        ("reproduce misalignment_table6", "did you mean misalignment_table5"),
        (
            "reproduce bam_table1 scale=cpu",
            "scale=cpu is not declared by bam_table1: did you",
        ),
        ("reproduce demo method=sgd", "method=sgd is set by the table"),
        ("reproduce demo seed=1", "seed=1 is set by the table"),
        ("reproduce demo ++seed=1", "++seed=1 is set by the table"),
        ("reproduce demo table=misalignment_table5", "is set by the table"),
        ("reproduce demo table.seeds=3", "table.seeds must be a list"),
        ("reproduce demo table.seeds=[]", "seeds must name at least one"),
        ("reproduce demo table.methods=[sgd,dpgsd]", "method=dpgsd is unknown"),
        ("reproduce misalignment_table4 table.methods=[dpsgd]", "baseline=sgd is unknown"),
        ("reproduce demo +table.note=x", "there is no 'note' in the table: did you mean notes"),
        ("reproduce demo epoch=3", "epoch is not a setting: did you mean epochs"),
        ("reproduce demo epochs=0", "epochs must be a whole number from 1, got 0."),
        ("reproduce demo jobs=0", "jobs must be a whole number from 1 to "),
    ],
)
def test_a_command_that_cannot_be_is_refused_in_one_sentence(words, sentence, command, nowhere):
    overrides = nowhere if words.startswith("reproduce ") else ()
    refused(command(*words.split(), *overrides), sentence)


def test_a_device_that_is_not_there_is_refused(command, tmp_path):
    for device in ("nonsense", "meta"):
        done = command("run", f"results_dir={tmp_path}", f"device={device}")
        refused(done, f"device={device} is not available here; try device=auto.")


def test_a_results_folder_that_cannot_be_written_is_refused_before_training(
    command, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setattr("dpbench.execution.run.fit", lambda *_: pytest.fail("trained"))
    for arguments in (["run"], ["reproduce", "demo"]):
        done = command(*arguments, f"results_dir={tmp_path / 'file'}")
        refused(done, "cannot be written (Not a directory); set results_dir")


def test_a_data_folder_that_cannot_be_written_is_refused(command, tmp_path):
    (tmp_path / "file").touch()
    folders = f"data_dir={tmp_path / 'file'}", f"results_dir={tmp_path}"
    refused(command("run", "dataset=adult", *folders), "set data_dir or DPBENCH_DATA to a folder")


def test_one_commands_usage_is_its_part_of_the_whole(command):
    for name in COMMANDS:
        for flag in ("--help", "-h"):
            done = command(name, flag)
            assert (done.code, done.err) == (0, [])
            assert done.out[0].startswith(f"dpbench {name} ")
            assert not any(re.match(rf"\W*{other} \[", line) for other in COMMANDS if other != name
                           for line in done.out)  # fmt: skip
    assert command("rum", "--help").code == 2


def test_a_corrupted_data_file_is_refused(command, tmp_path):
    file = tmp_path / "adult" / "adult.data"
    file.parent.mkdir()
    file.write_text("39, State-gov, 77516, Bachelors\n")
    folders = f"data_dir={tmp_path}", f"results_dir={tmp_path}"
    for arguments in (["run", "dataset=adult"], ["run", "-m", "dataset=adult", "seed=0,1"]):
        refused(command(*arguments, *folders), f"{file} is truncated or altered: delete it")


def test_a_process_ends_with_code_2_and_one_line(nowhere):
    refused(process("run", "dataset=adult", "epoch=3", *nowhere), "epoch is not a setting")


def test_a_delta_above_1_over_n_is_a_warning_and_no_refusal(command, nowhere):
    done = command("epsilon", "privacy.delta=0.001", *nowhere)
    assert done.code == 0
    (line,) = done.err
    assert line.startswith("dpbench: privacy.delta=0.001 is above 1/n = 0.0007")
    assert json.loads(done.out[-1])["delta"] == 0.001
    assert command("epsilon", "privacy.delta=0.0001", *nowhere).err == []


def test_usage_names_every_command(command):
    for words in ([], ["--help"], ["-h"], ["help"]):
        done = command(*words)
        assert (done.code, done.err) == (0, [])
        text = "\n".join(done.out)
        assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in COMMANDS)


# The epsilons that the paper printed, with DP-SGD.
@pytest.mark.parametrize(
    ("table", "printed"),
    [
        ("misalignment_table4", "3.41"),
        ("misalignment_table5", "2.27"),
        ("misalignment_table2", "5.90"),
        ("misalignment_table3", "2.49"),
    ],
)
def test_epsilon_is_the_one_that_the_paper_printed(table, printed, command, nowhere):
    done = command("epsilon", f"+table={table}", "method=dpsgd", *nowhere)
    assert (done.code, done.err) == (0, [])
    said = json.loads(done.out[-1])
    assert f"{said['rdp']:.2f}" == printed
    assert said["gdp"] < said["pld"] < said["rdp"]
    assert said["guarantee"] == "proven"


def test_epsilon_says_what_it_is_the_epsilon_of(command, nowhere):
    table = "+table=misalignment_table4"
    said = json.loads(command("epsilon", table, "method=dpsgd_global_adapt", *nowhere).out[-1])
    assert said["delta"] == 1e-6
    assert said["noise_multiplier"] == 1.0
    assert said["sample_rate"] == 1 / 92
    assert said["steps"] == 1840
    # One batch answers both queries, which costs more than the paper's reasoning has it.
    assert said["rdp"] > said["claimed"]
    (entry,) = said["ledger"]
    assert [release["what"] for release in entry["releases"]] == [
        "gradient sum",
        "counts for the clip",
    ]


def test_epsilon_without_privacy_is_infinite(command, nowhere):
    line = command("epsilon", "method=sgd", *nowhere).out[-1]
    assert '"rdp": Infinity' in line
    said = json.loads(line)
    assert said["rdp"] == said["pld"] == said["gdp"] == math.inf


@pytest.mark.parametrize("words", ["dataset=dutch method=fairlens", "sampler=shuffled"])
def test_no_epsilon_is_shown_where_none_is_proven(words, command, nowhere):
    said = json.loads(command("epsilon", *words.split(), *nowhere).out[-1])
    assert [said["rdp"], said["pld"], said["gdp"]] == [None, None, None]
    assert said["guarantee"] == "none"
    assert said["why"]


def test_list_names_what_there_is(command):
    names = sorted(path.stem for path in (ROOT / "conf" / "dataset").glob("*.yaml"))
    assert command("list", "dataset").out == [f"dataset: {', '.join(names)}"]
    everything = command("list").out
    heads = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
    assert [line.split(":")[0] for line in everything] == heads


def test_data_checks_the_sets_that_are_named(command):
    assert command("data", "digits").out == ["digits: 1438 training and 359 test examples"]


SMALL = ["epochs=2", "model=logistic", "batch_size=128", "threads=1"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run in a process of its own: what it printed, and its results folder."""
    folder = tmp_path_factory.mktemp("results")
    return process("run", *SMALL, f"results_dir={folder}"), folder


def test_a_run_prints_where_its_record_is_and_nothing_else(first):
    done, folder = first
    assert (done.code, done.err) == (0, [])
    (path,) = (folder / "runs").iterdir()
    assert done.out == [str(path)]


def test_a_record_has_what_other_tools_read(first):
    done, _ = first
    record = json.loads(Path(done.out[-1]).read_text())
    assert record["schema"] == SCHEMA
    assert record["status"] == "complete"
    assert record["config"]["epochs"] == 2
    assert record["config"]["choices"]["model"] == "logistic"
    assert len(record["history"]["train/loss"]) == 2
    metrics, privacy, provenance = (record[k] for k in ("metrics", "privacy", "provenance"))
    wanted = ["accuracy", "loss", "ece", "mce", *(f"accuracy/{digit}" for digit in range(10))]
    assert all(math.isfinite(metrics[f"test/{name}"]) for name in wanted)
    assert 0.1 < metrics["test/accuracy"] <= 1
    assert all(isinstance(value, float) for value in metrics.values())
    assert (privacy["steps"], privacy["sample_rate"]) == (2 * 12, 1 / 12)
    assert 0 < privacy["pld"] < privacy["rdp"] < math.inf
    assert provenance["torch"] == version("torch")
    assert provenance["dpbench"] == dpbench.__version__
    assert provenance["engine"] == "ghost"
    assert provenance["threads"] == 1
    assert provenance["device"]
    assert provenance["seconds"] > 0
    assert provenance["peak_memory_mib"] > 10
    assert "commit" in provenance


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_a_record_names_the_commit(first):
    done, _ = first
    commit = json.loads(Path(done.out[-1]).read_text())["provenance"]["commit"]
    assert re.fullmatch(r"[0-9a-f]{12}\+?", commit)


def test_a_run_is_made_once_unless_it_is_asked_for_again(first, command):
    done, folder = first
    path = Path(done.out[-1])
    content, changed = path.read_bytes(), path.stat().st_mtime_ns
    overrides = [*SMALL, f"results_dir={folder}"]

    assert command("run", *overrides, "engine=vmap").out == [str(path)]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed)

    assert command("run", *overrides, "engine=vmap", "again=true").out == [str(path)]
    assert path.stat().st_mtime_ns > changed
    assert json.loads(path.read_text())["provenance"]["engine"] == "vmap"


WITHOUT_TORCH = """
import sys
from dpbench.cli.main import main
sys.modules["torch"] = None  # to import it is an error
sys.argv = ["dpbench", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("words", "code"), [((), 0), (("nonsense=1",), 2), (("method=nonsense",), 2), (("jobs=0",), 2)]
)
def test_a_finished_run_and_a_refusal_are_answered_without_torch(words, code, first):
    made, folder = first
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "run", *SMALL, f"results_dir={folder}", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (done.stdout or done.stderr).count("\n") == 1
    assert done.stdout in ("", f"{made.out[-1]}\n")


def test_a_broken_record_is_made_again(command, tmp_path):
    overrides = ["epochs=1", "model=logistic", f"results_dir={tmp_path}"]
    path = Path(command("run", *overrides).out[-1])
    record = json.loads(path.read_text())
    path.write_bytes(path.read_bytes()[:-100])
    command("run", *overrides)
    again = json.loads(path.read_text())
    assert (again["metrics"], again["privacy"]) == (record["metrics"], record["privacy"])


def test_a_sweep_makes_one_record_each(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command("run", "-m", "seed=0,1", "epochs=1", "model=logistic", f"results_dir={tmp_path}")
    assert (done.code, done.err) == (0, [])
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").iterdir()]
    assert sorted(record["config"]["seed"] for record in records) == [0, 1]
    assert {line for line in done.out if line.endswith(".json")} == {
        str(path) for path in (tmp_path / "runs").iterdir()
    }
    # Hydra would otherwise leave a file or a folder of its own where the command was given.
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
