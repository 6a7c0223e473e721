"""What cannot be done is refused in one sentence, with exit code 2."""

import subprocess
import sys

import pytest

from tests.cli.processes import ROOT, process


def refused(done, sentence):
    assert (done.code, done.out) == (2, [])
    (line,) = done.err
    assert line.startswith("dpbench: ")
    assert len(line) < 1000
    assert sentence in line


REFUSED = [
    ("datset=digits", "datset is not a setting: did you mean dataset"),
    ("dataset digits", "got 'dataset': write for instance dataset=adult, without spaces."),
    ("--dataset digits", "--dataset is not a flag of run (settings are KEY=VALUE): write dataset="),
    ("lr=0.5", "lr is not a setting: did you mean optimizer.lr?"),
    ("privacy=noise1 privacy.epsilon=2", "for an epsilon of 2, write privacy=eps1 privacy.eps"),
    ("privacy.noise_multiplier=2", "of 2, privacy=noise1 privacy.noise_multiplier=2."),
    ("dataset.separator=;", "quote a value with such characters twice, as in 'dataset.sep"),
    ("dataset=digit", "dataset=digit is unknown: did you mean digits"),
    ("dataset=adult epoch=3", "epoch is not a setting: did you mean epochs"),
    ("dataset=adult method=dpgsd", "method=dpgsd is unknown: did you mean dpsgd"),
    ("engine=gost", "engine=gost is unknown: did you mean ghost"),
    ("engine.name=gost", "engine=gost is unknown: did you mean ghost"),
    ("sampler=poison", "sampler=poison is unknown: did you mean poisson"),
    ("method.variant=papper", "variant=papper is unknown: did you mean paper"),
    ("model.activation=tahn", "activation=tahn is unknown: did you mean tanh"),
    (
        "privacy.accountant=prv",
        "privacy.accountant=prv is unknown: choose from best, gdp, pld, rdp",
    ),
    ("privacy.accountant=gdp", "privacy.accountant=gdp is an approximation"),
    ("+bath_size=3", "bath_size is not a setting: did you mean batch_size"),
    ("+table=misalignment_table6", "did you mean misalignment_table5"),
    ("dataset._target_=os.system", "_target_='os.system' is refused"),
    (
        "privacy=noise1 privacy.noise_multiplier=0",
        "privacy.noise_multiplier must be a positive number, got 0.",
    ),
    (
        "privacy=noise1 privacy.noise_multiplier=-1",
        "privacy.noise_multiplier must be a positive number, got -1.",
    ),
    (
        "privacy.noise_multiplier=nan",
        "privacy.noise_multiplier must be a number or follows or null",
    ),
    ("privacy.noise_multiplier=a", "privacy.noise_multiplier must be a number or follows or null"),
    ("privacy=noise1 privacy.noise_multiplier=null", "either noise_multiplier or epsilon"),
    ("privacy=noise1 privacy.epsilon=1", "either noise_multiplier or epsilon"),
    ("privacy=eps3 privacy.epsilon=0", "privacy.epsilon must be a positive number, got 0."),
    ("privacy.delta=0", "privacy.delta must be a number between 0 and 1, got 0."),
    ("privacy.delta=1", "privacy.delta must be a number between 0 and 1, got 1."),
    ("privacy.delta=-0.1", "privacy.delta must be a number between 0 and 1, got -0.1."),
    ("privacy.delta=small", "privacy.delta must be a number, got 'small'."),
    (
        "privacy=eps1 method=dpsgd_global_adapt method.count_noise_multiplier=0.01 dataset=dutch",
        "even a noise multiplier of 100,000 leaves epsilon=",
    ),
    (
        "method.bound=0",
        "the clipping bound (method.bound) must be a number from 1e-12 to 1e+12, got 0.",
    ),
    (
        "method.bound=-1",
        "the clipping bound (method.bound) must be a number from 1e-12 to 1e+12, got -1.",
    ),
    ("batch_size=1439", "batch_size=1439 is larger than the 1438 training examples"),
    ("batch_size=0", "batch_size must be a whole number of at least 1, got 0."),
    ("batch_size=null", "batch_size must be a whole number of at least 1, got None."),
    ("method=fairlens", "fairlens is defined for exactly 2 groups and digits has 10"),
    ("method=fairlens dataset=dutch physical_batch_size=9", "leave physical_batch_size unset"),
    ("model=cnn_tanh dataset=adult", "model=cnn_tanh needs images"),
    ("model.widths=[-1]", "each of model.widths must be a whole number of at least 1, got -1."),
    ("optimizer.lr=-1", "optimizer.lr must be a positive number, got -1."),
    ("optimizer.lr=0", "optimizer.lr must be a positive number, got 0."),
    ("optimizer.momentum=5", "optimizer.momentum must be a number from 0 to below 1, got 5."),
    ("optimizer=rmsprop optimizer.alpha=1", "optimizer.alpha must be a number from 0 to below 1"),
    ("optimizer=adam optimizer.lr=0.0", "optimizer.lr must be a positive number, got 0.0."),
    ("dataset.test_share=1e-12", "test_share=1e-12 leaves no example to test on."),
    ("dataset=adult dataset.test_share=1e-5", "test_share=1e-05 leaves no example to test on."),
    ("dataset=dutch dataset.test_share=1e-5", "test_share=1e-05 leaves no example to test on."),
    ("dataset=california dataset.test_size=1", "test_size must be a whole number from 2 to 20639"),
    ("results_dir=a=b", "quote a value with such characters twice, as in 'results_dir=\"a=b\"'."),
    ("results_dir=${.x}", "results_dir cannot be read: Interpolation key 'x' not found; ${NAME}"),
    ("optimizer.lr=interval(0,1)", "optimizer.lr=interval(0,1) is an interval: use dpbench search"),
    (
        "optimizer.lr=tag(log,interval(1,2))",
        "is an interval: use dpbench search, or give optimizer",
    ),
    ("~" + "k" * 4000 + "=3", "k... cannot be deleted: set it to a value."),
    ("+" + "k" * 4000 + "=3", "k... is not a setting: "),
    ("x" * 400 + ".y=1", "x... is not a setting: "),
    ("model=" + "x" * 400, "x... is unknown: "),
    ("dataset.é=3", "a key has letters, digits, dots and _, and others only within a mapping"),
    ("optimizer.lr=fast", "optimizer.lr must be a number, got 'fast'."),
    ("+optimizer.momntum=0.9", "optimizer.momntum is not a setting: did you mean momentum"),
    ("epochs=0", "epochs must be a whole number of at least 1, got 0."),
    ("epochs=1.5", "epochs must be a whole number of at least 1, got 1.5."),
    ("epochs=abc", "epochs must be a whole number of at least 1, got 'abc'."),
    ("epochs=true", "epochs must be a whole number of at least 1, got True."),
    ("epochs=null", "epochs must be a whole number of at least 1, got None."),
    ("seed=-1", "seed must be a whole number of at least 0, got -1."),
    ("seed=0.5", "seed must be a whole number of at least 0, got 0.5."),
    ("physical_batch_size=0", "physical_batch_size must be a whole number of at least 1, got 0."),
    (
        "physical_batch_size=some",
        "physical_batch_size='some' must be auto, null or a whole number of at least 1.",
    ),
    ("channels_last=3", "channels_last must be true or false, got 3."),
    ("threads=0", "threads must be a whole number from 1 to "),
    ("jobs=two", "jobs must be a whole number from 1 to "),
    ("again=maybe", "again='maybe' must be true, false or stale."),
    ("results_dir=null", "results_dir must be the name of a folder, got None."),
    (
        "data_dir=5",
        "data_dir must be the name of a folder, got 5: text that looks like a number, true or null "
        "is quoted, as in 'data_dir=\"5\"'.",
    ),
    (
        "method=sgd,dpsgd",
        "method=sgd,dpsgd names several runs: use dpbench run -m; a list is written method=[...]",
    ),
    ("-m seed=0,x", "seed must be a whole number of at least 0, got 'x'."),
    ("-m method=sgd,dpgsd", "method=dpgsd is unknown: did you mean dpsgd"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=[words for words, _ in REFUSED])
def test_an_impossible_run_is_refused_in_one_sentence(words, sentence, command, nowhere):
    refused(command("run", *nowhere, *words.split()), sentence)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "frobnicate",
            "frobnicate is not a command: choose from audit, bench, challenge",
        ),
        ("rum", "rum is not a command: did you mean run?"),
        ("epsilon epoch=3", "epoch is not a setting: did you mean epochs"),
        ("epsilon epochs=0,20", "epochs must be a whole number of at least 1, got 0."),
        ("epsilon epochs=1,2 ~diagnostics", "diagnostics cannot be deleted: choose an option"),
        ("search", "search needs a range: batch_size=64,256 or"),
        ("search optimizer.lr=interval(1,0)", "the first bound of interval(1,0) must be below"),
        ("list datasets", "group=datasets is unknown: did you mean dataset"),
        (
            "data csv",
            "csv stands for data of your own: dpbench data dataset=csv with its settings describes",
        ),
        ("data digit", "dataset=digit is unknown: did you mean digits"),
        ("reproduce", "reproduce needs a table, such as demo"),
        (
            "reproduce results_dir=mine demo",
            "reproduce needs the table first: dpbench reproduce TABLE",
        ),
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
        (
            "reproduce misalignment_table4 table.methods=[dpsgd]",
            "table.methods must contain sgd, the baseline",
        ),
        ("reproduce demo +table.note=x", "there is no 'note' in the table: did you mean notes"),
        ("reproduce demo epoch=3", "epoch is not a setting: did you mean epochs"),
        ("reproduce demo epochs=0", "epochs must be a whole number of at least 1, got 0."),
        ("reproduce demo jobs=0", "jobs must be a whole number from 1 to "),
    ],
)
def test_an_impossible_command_is_refused_in_one_sentence(words, sentence, command, nowhere):
    overrides = nowhere if words.startswith("reproduce ") else ()
    refused(command(*words.split(), *overrides), sentence)


def test_a_device_that_is_not_there_is_refused_before_any_work(command, nowhere):
    for device in ("nonsense", "meta", "cuda:999"):
        done = command("run", *nowhere, f"device={device}")
        refused(done, f"device={device} is not available here; try device=auto.")


@pytest.mark.slow
def test_a_results_folder_that_cannot_be_written_is_refused_before_training(
    command, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    for arguments in (["run"], ["reproduce", "demo"]):
        done = command(*arguments, f"results_dir={tmp_path / 'file'}")
        refused(done, "cannot be written (Not a directory); set results_dir")


def test_a_data_folder_that_cannot_be_written_is_refused(command, tmp_path):
    (tmp_path / "file").touch()
    folders = f"data_dir={tmp_path / 'file'}", f"results_dir={tmp_path}"
    refused(command("run", "dataset=adult", *folders), "set data_dir or DPBENCH_DATA to a folder")


def test_a_corrupted_data_file_is_refused(command, tmp_path):
    file = tmp_path / "adult" / "adult.data"
    file.parent.mkdir()
    file.write_text("39, State-gov, 77516, Bachelors\n")
    folders = f"data_dir={tmp_path}", f"results_dir={tmp_path}"
    for arguments in (["run", "dataset=adult"], ["run", "-m", "dataset=adult", "seed=0,1"]):
        refused(command(*arguments, *folders), f"{file} is truncated or altered: delete it")


@pytest.mark.slow
def test_a_process_ends_with_code_2_and_one_line(nowhere):
    refused(process("run", "dataset=adult", "epoch=3", *nowhere), "epoch is not a setting")


IMPORTED = """
import sys
from dpbench.cli.main import main
try:
    main()
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["audit canary=10", "epsilon epochs=none"])
def test_a_refusal_waits_for_no_import_of_torch(words):
    command = [sys.executable, "-c", IMPORTED, *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "2 False\n", done.stderr


def test_a_deleted_working_folder_is_refused_before_any_work(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    done = command("run", "epochs=1")
    assert (done.code, done.out) == (2, [])
    assert done.err == [
        "dpbench: the working folder cannot be used (No such file or directory): change to "
        "another one."
    ]
    assert command("--version").code == 0
