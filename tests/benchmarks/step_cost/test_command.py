"""`dpbench bench`, and that it needs no other library."""

import shutil
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dpbench.benchmarks.step_cost import cases, contenders, environment
from dpbench.benchmarks.step_cost.cases import CannotBeTimed, Case
from dpbench.benchmarks.step_cost.command import bench, parse
from dpbench.benchmarks.step_cost.contender_process import reason
from dpbench.benchmarks.step_cost.environment import processor_name
from dpbench.benchmarks.step_cost.opacus_peer import opacus
from dpbench.benchmarks.step_cost.report import read
from dpbench.benchmarks.step_cost.timing import measure

from dpbench.runs.config import search_path
from dpbench.system.errors import UserError
from dpbench.system.memory import resident

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")
TINY = Case("tiny", "mlp", (5,), 3, 8, {"widths": [4]})


def test_of_each_network_each_part_is_timed():
    request = parse(["device=cpu", "suite=parts"])
    networks = "efficientnet_lite0", "vit_tiny", "bert_tiny", "minilm"
    names = [f"{network}_{part}" for network in networks for part in cases.TRAINED]
    assert [case.name for case in request.cases()] == names
    assert {"plain", "ours_ghost", "opake"} < set(request.contenders(request.cases()[0]))
    trained = [
        sum(p.numel() for p in case.build(CPU).parameters() if p.requires_grad)
        for case in request.cases()
    ]
    by_network = [trained[i : i + 6] for i in range(0, len(trained), 6)]
    assert all(len(set(sizes)) == 6 for sizes in by_network)
    assert all(min(sizes) == sizes[0] and max(sizes) == sizes[-1] for sizes in by_network)


def test_missing_results_are_refused_and_opacus_names_one_layer():
    part = next(c for c in cases.PARTS if c.name == "efficientnet_lite0_norms_and_head")
    with pytest.raises(CannotBeTimed, match=r"Opacus refuses the model: .*bn1") as refused:
        opacus(part, CPU, "hooks")
    assert len(str(refused.value)) < 300
    with pytest.raises(CannotBeTimed, match="model=nonsuch is not available yet"):
        Case("tiny", "nonsuch", (5,), 3, 8).build(CPU)
    with pytest.raises(CannotBeTimed, match=r"cannot be built: model\.width is not a setting"):
        Case("tiny", "mlp", (5,), 3, 8, {"width": 4}).build(CPU)


def test_compiled_steps_run_where_the_case_has_them_or_they_are_named():
    usual = parse(["device=cpu"])
    assert not any(c.compiled for c in usual.contenders(TINY).values())
    (compiled,) = [case for case in cases.STEP["cuda"] if case.compiled]
    assert "ours_ghost_compiled" in usual.contenders(compiled)
    assert "plain_compiled" in parse(["contender=plain_compiled"]).contenders(TINY)


@pytest.mark.parametrize("known", [cases.STEP["cpu"], cases.STEP["cuda"], cases.DEPTH])
def test_every_case_has_a_name_of_its_own(known):
    assert len({case.name for case in known}) == len(known)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("model/logistic.yaml", "a: [1\n", "logistic.yaml, line 2 is not valid YAML: expected ','"),
        ("method/dpsgd.yaml", "a: b: c", "dpsgd.yaml, line 1 is not valid YAML: mapping values"),
        ("method/dpsgd.yaml", "- a", "dpsgd.yaml must be a mapping of settings, got ['a']."),
        ("method/dpsgd.yaml", "", "dpsgd.yaml must be a mapping of settings, got None."),
        ("model/logistic.yaml", "\udcff", "logistic.yaml is not UTF-8 text: save it as that."),
    ],
)
def test_a_broken_file_is_refused_before_any_timing(file, text, sentence, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "conf" / file).write_bytes(text.encode(errors="surrogateescape"))
    monkeypatch.setattr(cases, "conf_folder", lambda: tmp_path / "conf")
    monkeypatch.setattr(search_path, "option_folders", lambda: (tmp_path / "conf",))
    monkeypatch.setattr(
        "dpbench.benchmarks.step_cost.command.measure", lambda *_: pytest.fail("timed")
    )
    with pytest.raises(UserError) as told:
        bench(["device=cpu", "case=dutch_logistic", "contender=ours_ghost", f"out={tmp_path}"])
    assert sentence in str(told.value)


def test_an_option_without_a_target_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "conf_folder", lambda: tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mlp.yaml").write_text("widths: [4]")
    with pytest.raises(CannotBeTimed, match="model=mlp cannot be built: its file has no _targ"):
        TINY.build(CPU)


@pytest.mark.parametrize("name", ["opacus_hooks", "jax_privacy"])
def test_a_library_that_is_not_installed_is_reported(name, monkeypatch):
    for package in ("opacus.grad_sample.utils", "jax"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as missing:
        contenders.STEP[name].make(TINY, CPU)
    assert reason(missing.value).startswith("not installed (")


def test_dropout_is_off_batches_stay_and_the_plain_step_is_first():
    one, two = (TINY.build(CPU).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(TINY.batch(CPU).inputs, TINY.batch(CPU).inputs)
    request = parse(["device=cpu", "contender=opacus_ghost,plain"])
    assert list(request.contenders(TINY)) == ["plain", "opacus_ghost"]


def test_batches_of_a_poisson_case_differ_in_size_and_not_from_run_to_run():
    case = replace(TINY, batch_size=256, epoch=92)
    first, *others = case.batches(CPU)
    assert (len(first), len(others)) == (256, 92)
    sizes = [len(batch) for batch in others]
    assert sizes == [len(batch) for batch in case.batches(CPU)[1:]]
    assert abs(statistics.mean(sizes) - 256) < 5 * 16 / 92**0.5
    assert 10 < statistics.stdev(sizes) < 22
    assert len({*sizes}) > 92 / 3
    assert torch.equal(others[0].inputs[:200], first.inputs[:200])
    assert [len(batch) for batch in TINY.batches(CPU)] == [8]


def test_jax_privacy_is_not_timed_on_sizes_that_it_would_be_compiled_for():
    with pytest.raises(CannotBeTimed, match="batches of one size"):
        contenders.STEP["jax_privacy"].make(replace(TINY, epoch=5), CPU)


@pytest.mark.long
def test_contenders_are_timed_in_processes_of_their_own():
    chosen = {name: contenders.CONTENDERS[name] for name in ("plain", "ours_vmap", "fastdp", "bam")}
    timed = {one.contender: one for one in measure(TINY, chosen, 2, "cpu")}
    for name in ("plain", "ours_vmap"):
        assert timed[name].check.message == "ok"
        assert len(timed[name].seconds) == 2
        assert timed[name].parameters == 39
    assert "not installed" in timed["fastdp"].reason


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("AMD EPYC 7R13 Processor", "amd_epyc"),
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "intel_xeon"),
        ("NVIDIA H100 80GB HBM3", "nvidia_h100"),
    ],
)
def test_files_are_named_after_the_kind_of_processor(full, short, monkeypatch):
    monkeypatch.setattr(environment, "_processor", lambda: full)
    assert parse(["device=cpu", "suite=depth"]).file.name == f"depth_{short}.csv"


@pytest.mark.slow
def test_the_command_writes_numbers_table_and_picture_without_peers(tmp_path):
    blocked = "import sys; sys.modules.update(dict.fromkeys(['opacus', 'opake']))"
    run = "from dpbench.benchmarks.step_cost.command import bench; bench(sys.argv[1:])"
    words = ["case=dutch_logistic", "contender=ours_ghost,fastdp", "repeats=1", "device=cpu"]
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}\n{run}", *words, f"out={tmp_path}"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    stem = f"step_{processor_name('cpu')}"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{stem}.{kind}" for kind in ("csv", "md", "png")}
    data = read(tmp_path / f"{stem}.csv").set_index("contender")
    assert data["check"].to_dict() == {"plain": "ok", "ours_ghost": "ok", "fastdp": ""}
    assert "not installed" in data.loc["fastdp", "reason"]
    assert done.stdout.strip() == (tmp_path / f"{stem}.md").read_text().strip()


FREED_BEFORE = """
import torch
from dpbench.benchmarks.step_cost.cases import STEP as CASES
from dpbench.benchmarks.step_cost.contenders import STEP
from dpbench.benchmarks.step_cost.contender_process import TimedStepper
from dpbench.system.memory import retain_freed_memory
retain_freed_memory()

def make(case, device):
    torch.ones(50 * 2**20)
    return STEP["plain"].make(case, device)

timed = TimedStepper(make, CASES["cpu"][0], torch.device("cpu"))
timed.warm_up()
print(timed.memory())
"""


@pytest.mark.long
@pytest.mark.skipif(resident("VmHWM") is None, reason="needs Linux's /proc")
def test_memory_that_was_freed_before_is_not_taken_off_that_of_a_step():
    done = subprocess.run(
        [sys.executable, "-c", FREED_BEFORE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) >= 0
