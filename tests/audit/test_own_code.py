"""Audits of one's own code: planted mistakes are found, and right loops pass."""

import json
from dataclasses import dataclass

import pytest
import torch

from dpbench import audit
from dpbench.audit.code.audited import Audited
from dpbench.audit.code.checks import CHECKS, findings
from dpbench.audit.code.door import KINDS, report_of_functions
from dpbench.audit.code.finding import FLAGGED, PASSED, SKIPPED
from dpbench.audit.code.task import Claim
from dpbench.cli.main import main
from dpbench.records.epsilon import REFUTED
from dpbench.system.errors import UserError
from tests.audit.loops.planted import FAULTS, LOOPS, factory_of, kind_of

FOUND = (REFUTED, FLAGGED)


def audited(loop: str, replaced: str = "", by: str = "") -> Audited:
    factory = factory_of(loop, replaced, by)
    return KINDS[kind_of(factory)](loop, factory, Claim())


@pytest.fixture(params=FAULTS, ids=lambda fault: fault["fault"])
def fault(request):
    return request.param


def test_each_fault_stands_for_a_text_that_its_loop_has_once(fault):
    factory_of(fault["loop"], fault["replace"], fault["with"])


@pytest.mark.slow
def test_the_check_for_a_fault_finds_it(fault):
    code = audited(fault["loop"], fault["replace"], fault["with"])
    (check,) = (check for check in CHECKS if check.name == fault["found_by"])
    assert check.of(code).verdict in FOUND


@pytest.mark.long
@pytest.mark.parametrize("loop", LOOPS)
def test_a_right_loop_passes_every_check(loop):
    found = dict(findings(audited(loop)))
    assert {finding.verdict for finding in found.values()} <= {PASSED, SKIPPED}, found


@pytest.mark.slow
def test_a_right_loop_passes_the_command(capsys, monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    words = ["training=tests.audit.loops.poisson:factory", "canaries=500", f"out={page}"]
    monkeypatch.setattr("sys.argv", ["dpbench", "audit", *words])
    main()
    shown = capsys.readouterr().out
    said = json.loads(shown.splitlines()[-1])
    assert (said["verdict"], said["refuted"], said["flagged"]) == ("not refuted", [], [])
    assert shown.startswith(page.read_text())


@dataclass
class Skipping:
    """A step without noise on empty batches, that would pass all checks but one."""

    bound: float = 1.0

    def __call__(self, task):
        weights = torch.zeros(task.features)

        def step(inputs, targets):
            errors = inputs @ weights - targets
            gradients = 2 * errors.unsqueeze(1) * inputs
            factors = (task.bound / (gradients.norm(dim=1) + 1e-9)).clamp(max=1)
            noise = task.noise_multiplier * task.bound * torch.randn(task.features)
            total = factors @ gradients + (noise if len(inputs) else 0)
            weights.sub_(task.learning_rate * total / task.batch_size)

        return weights, step


@pytest.mark.slow
def test_from_python_a_report_says_what_is_wrong():
    report = audit(step=Skipping(), canaries=0)
    assert (report.verdict, report.named(REFUTED)) == (REFUTED, ["empty batch"])
    assert "An empty batch is skipped without noise" in report.page


def test_an_epsilon_below_that_of_the_settings_is_refuted(monkeypatch):
    monkeypatch.setattr("dpbench.audit.code.door.findings", lambda code: iter(()))
    factories = {"training": factory_of("poisson"), "step": None}
    for claim, verdict in ((5.0, REFUTED), (5.8, "not refuted")):
        settings = {"claim": claim, "canaries": 0}
        assert report_of_functions(factories, settings).verdict == verdict


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["step=nowhere:factory"],
            "nowhere:factory cannot be imported (No module named 'nowhere')",
        ),
        (["step=json"], "json names no factory: write package.module:factory."),
        (["step=json:tool.no"], "json:tool.no cannot be imported"),
        (["step=sys:path"], "sys:path is no function"),
        (["step=json:dumps", "training=json:dumps"], "give one"),
        (["step=json:dumps", "method=dpsgd"], "method is not an argument of audit"),
        (["step=json:dumps", "noise_multiplier=0"], "noise_multiplier"),
        (["step=json:dumps", "sample_rate=2"], "sample_rate"),
        (["step=json:dumps"], "json:dumps raised TypeError"),
        (["step=builtins:id"], "builtins:id must return a pair"),
        (["training=builtins:id"], "builtins:id must be a generator"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_sentence(
    words, why, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr("sys.argv", ["dpbench", "audit", *words, f"out={tmp_path / 'page.md'}"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert why in capsys.readouterr().err


def test_from_python_one_factory_is_given():
    with pytest.raises(UserError, match="give one factory"):
        audit(noise_multiplier=1.0)
