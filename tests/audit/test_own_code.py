"""Audits of one's own code: planted mistakes are found, and right loops pass."""

import json
import os
import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpbench import audit
from dpbench.audit.code.audited import Audited, AuditedStep, AuditedTraining
from dpbench.audit.code.checks import CHECKS, findings
from dpbench.audit.code.checks import noise as noise_checks
from dpbench.audit.code.door import report_of_functions
from dpbench.audit.code.examples import MadeUp, given
from dpbench.audit.code.task import FLAGGED, PASSED, SKIPPED, ClaimedDpsgd, Finding
from dpbench.cli.main import main
from dpbench.runs.records.epsilon import REFUTED
from dpbench.system.errors import UserError
from tests.audit.loops.planted import FAULTS, LOOPS, audited, factory_of, kind_of

FOUND = (REFUTED, FLAGGED)


def finding_of(name: str, code: Audited) -> Finding:
    """What one check finds."""
    (check,) = (check for check in CHECKS if check.name == name)
    return check.of(code)


@pytest.fixture(params=FAULTS, ids=lambda fault: fault["fault"])
def fault(request):
    return request.param


def test_each_fault_stands_for_a_text_that_its_loop_has_once(fault):
    factory_of(fault["loop"], fault["replace"], fault["with"])


@pytest.mark.sampled(12)
@pytest.mark.slow
def test_the_check_for_a_fault_finds_it(fault):
    code = audited(fault["loop"], fault["replace"], fault["with"])
    finding = finding_of(fault["found_by"], code)
    assert finding.verdict in FOUND
    assert (" raised " in finding.sentence) == (fault["fault"] == "an empty batch is an error")


@pytest.mark.long
def test_an_audit_in_its_defaults_finds_a_fault(fault):
    factory = factory_of(fault["loop"], fault["replace"], fault["with"])
    report = audit(**{kind_of(factory): factory})
    assert report.verdict == REFUTED or report.named(FLAGGED)


def test_the_page_of_planted_faults_has_each_and_no_false_alarm():
    page = (Path(__file__).parents[2] / "results" / "planted_faults.md").read_text("utf-8")
    assert [f for f in FAULTS if f"| {f['fault']} | {f['loop']} |" not in page] == []
    assert f"- {len(FAULTS)} of {len(FAULTS)} mistakes are found: " in page
    assert "- 0 of 20 audits of right loops refute or flag one." in page


@pytest.mark.long
def test_no_right_loop_is_refuted_or_flagged():
    """Under other claims and seeds in each round; AUDIT_ROUNDS=200 takes minutes."""
    for seed in range(int(os.environ.get("AUDIT_ROUNDS", len(LOOPS)))):
        draw = random.Random(seed)
        claim = {
            "noise_multiplier": draw.choice([0.5, 1.0, 3.0]),
            "bound": draw.choice([0.1, 1, 7]),
            "sample_rate": draw.choice([0.05, 0.125]),
            "steps": draw.choice([10, 40, 90]),
        }
        found = dict(findings(audited(LOOPS[seed % len(LOOPS)], seed=seed, **claim)))
        assert {finding.verdict for finding in found.values()} <= {PASSED, SKIPPED}, (seed, found)


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


def labelled(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Small images and labels."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(number, 1, 4, 4, generator=draw), torch.arange(number) % 3


def classifier(share: float):
    """The factory of a right step on images, with a share of its noise."""

    def factory(task):
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

        def step(inputs, targets):
            residuals = model(inputs).softmax(1) - F.one_hot(targets, 3)
            features = torch.cat([inputs.flatten(1), torch.ones(len(inputs), 1)], 1)
            gradients = residuals.unsqueeze(2) * features.unsqueeze(1)
            norms = gradients.flatten(1).norm(dim=1)
            total = torch.tensordot((task.bound / norms).clamp(max=1), gradients, 1)
            noise = share * task.noise_multiplier * task.bound * torch.randn(total.shape)
            moved = task.learning_rate * (total + noise) / task.batch_size
            with torch.no_grad():
                model[1].weight -= moved[:, :-1]
                model[1].bias -= moved[:, -1]

        return model, step

    return factory


@pytest.mark.slow
def test_code_for_images_and_labels_is_audited_on_given_examples_and_told_their_bound():
    settings = {"examples": labelled, "bound": 0.5, "canaries": 0}
    right, wrong = (audit(step=classifier(share), **settings) for share in (1.0, 0.8))
    assert (right.verdict, right.named(FLAGGED)) == ("not refuted", [])
    assert wrong.named(REFUTED) == ["noise scale"]
    examples, claim = given("labelled", labelled), ClaimedDpsgd(bound=100.0)
    code = AuditedStep("classifier", classifier(1.0), claim, examples=examples)
    sentence = finding_of("sensitivity", code).sentence
    assert "none is clipped: give a smaller bound" in sentence


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda number: torch.zeros(number), "must return a pair"),
        (lambda number: (torch.zeros(3, 2), torch.zeros(3)), "returned fewer"),
    ],
)
def test_examples_that_are_none_are_refused(make, why):
    with pytest.raises(UserError, match=why):
        audit(step=classifier(1.0), examples=make)


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


def test_what_the_code_raises_is_told_with_its_line():
    def factory(task):
        raise ValueError("no such thing")

    with pytest.raises(UserError, match=r"ValueError: no such thing \(line \d+ of .*test_own_code"):
        report_of_functions({"step": factory}, None, {})


def quitting(*args):
    raise SystemExit(0)


def quitting_step(task):
    return torch.zeros(task.features), quitting


def quitting_training(task):
    yield torch.zeros(task.features)
    quitting()


@pytest.mark.parametrize(
    "words",
    [
        ["step=tests.audit.test_own_code:quitting"],
        ["step=tests.audit.test_own_code:quitting_step"],
        ["training=tests.audit.test_own_code:quitting_training"],
        ["step=tests.audit.loops.plain:factory", "examples=tests.audit.test_own_code:quitting"],
        ["step=quits_when_imported:factory"],
    ],
)
def test_code_that_exits_is_told_and_does_not_pass_the_audit(words, capsys, monkeypatch, tmp_path):
    (tmp_path / "quits_when_imported.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["dpbench", "audit", *words, f"out={tmp_path / 'page.md'}"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert " raised SystemExit: 0 (line " in capsys.readouterr().err


@pytest.mark.parametrize(
    "returned", [0.5, True, "done", [], [0.5], {"loss": 0.5}, torch.tensor(0.5), object()]
)
def test_what_a_step_returns_beside_parameters_is_ignored(returned):
    def factory(task):
        weights = torch.zeros(2)

        def step(inputs, targets):
            weights.add_(1)
            return returned

        return weights, step

    code = AuditedStep("with a loss", factory, ClaimedDpsgd())
    assert code.sums(MadeUp().usual(1.0)).tolist() == [[-64.0, -64.0]]


def test_noise_that_the_task_does_not_govern_and_parameters_that_grow_are_told():
    def factory(task):
        yield torch.zeros(2)
        yield torch.zeros(3)

    code = AuditedTraining("growing", factory, ClaimedDpsgd())
    with pytest.raises(UserError, match="released 2 numbers, and then 3"):
        code.exact_sum(MadeUp().usual(1.0))
    code = audited("plain", "task.noise_multiplier * task.bound)", "1.0)")
    finding = finding_of("noise scale", code)
    assert "its scale is not that of task.noise_multiplier" in finding.sentence


@pytest.mark.slow
def test_no_check_asks_a_training_for_batches_of_less_than_an_example():
    """Code that rounds the expected batch size, as data loaders need it, would fail there."""
    asked = []
    released = factory_of("poisson")

    def factory(task):
        asked.append(task.batch_size)
        return released(task)

    claim = ClaimedDpsgd(sample_rate=0.01, steps=10)
    assert {
        finding.verdict for _, finding in findings(AuditedTraining("rounds", factory, claim))
    } == {PASSED}
    assert min(asked) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "when"),
    [(-1, "before its initial parameters"), (0, "after 0 of 40"), (10, "after 10 of 40")],
)
def test_a_training_that_stops_early_is_refuted(stop, when):
    released = factory_of("poisson")
    code = AuditedTraining("short", lambda task: islice(released(task), stop + 1), ClaimedDpsgd())
    found = dict(findings(code))
    assert found["releases"].verdict == REFUTED
    assert f"short stopped {when}" in found["releases"].sentence
    assert found["noise scale"].verdict == found["sampling"].verdict == SKIPPED


def test_a_training_that_stops_between_its_claimed_steps_and_those_of_a_check_is_refuted():
    released = factory_of("poisson")
    code = AuditedTraining("short", lambda task: islice(released(task), 51), ClaimedDpsgd(steps=60))
    assert "short stopped after 50 of 60 steps" in finding_of("releases", code).sentence


@pytest.mark.slow
def test_noise_that_is_small_in_one_late_step_is_refuted():
    steps = (
        "for task in [__import__('dataclasses').replace(task, noise_multiplier="
        "task.noise_multiplier * (0.05 if k == 35 else 1)) for k in range(task.steps)]:"
    )
    code = audited("poisson", "for _ in range(task.steps):", steps)
    assert "In some steps the noise has 0.0" in finding_of("noise scale", code).sentence


@pytest.mark.slow
def test_of_a_long_training_all_steps_are_looked_at(monkeypatch):
    for name, value in {"DRAWS": 1, "STEPS_OF_LEAST_RUNS": 300, "MOST_NUMBERS": 1000}.items():
        monkeypatch.setattr(noise_checks, name, value)
    code = audited("poisson", steps=150)
    assert noise_checks.noise_as_claimed(code).shape == (2, 150, 7)
    assert finding_of("noise scale", code).verdict == PASSED


def seeded_step(task):
    torch.manual_seed(0)
    return Skipping()(task)


def seeded_training(task):
    weights, step = seeded_step(task)
    yield weights
    for _ in range(task.steps):
        step(task.inputs, task.targets)
        yield weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "factory", "verdict"),
    [
        (AuditedStep, Skipping(), PASSED),
        (AuditedStep, seeded_step, FLAGGED),
        (AuditedTraining, seeded_training, FLAGGED),
    ],
)
def test_a_seed_that_the_code_sets_itself_is_flagged(make, factory, verdict):
    finding = finding_of("noise independence", make("seeded", factory, ClaimedDpsgd()))
    assert finding.verdict == verdict
    assert ("the code seeds them itself" in finding.sentence) == (verdict == FLAGGED)


def test_a_module_that_python_cannot_read_is_told(tmp_path, monkeypatch):
    (tmp_path / "unreadable_module.py").write_text("def factory(:")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=r"SyntaxError: .* \(unreadable_module.py, line 1\); correct"
    ):
        audit(step="unreadable_module:factory")


def test_what_the_code_prints_is_no_result(capsys):
    def factory(task):
        print("said")
        return torch.zeros(2), lambda inputs, targets: torch.ones(2)

    code = AuditedStep("talking", factory, ClaimedDpsgd())
    assert code.sums(MadeUp().usual(1.0)).tolist() == [[-64.0, -64.0]]
    assert capsys.readouterr() == ("", "said\n")


def test_an_epsilon_below_that_of_the_settings_is_refuted(monkeypatch):
    monkeypatch.setattr("dpbench.audit.code.door.findings", lambda code: iter(()))
    factories = {"training": factory_of("poisson"), "step": None}
    for claim, verdict in ((5.0, REFUTED), (5.8, "not refuted")):
        settings = {"claim": claim, "canaries": 0}
        assert report_of_functions(factories, None, settings).verdict == verdict


def test_from_python_functions_may_be_named_and_one_factory_is_given(monkeypatch):
    monkeypatch.setattr("dpbench.audit.code.door.findings", lambda code: iter(()))
    here = "tests.audit.test_own_code"
    report = audit(step=f"{here}:seeded_step", examples=f"{here}:labelled", canaries=0)
    assert report.command == f"dpbench audit step={here}:seeded_step canaries=0"
    assert report.command == audit(step=seeded_step, canaries=0).command
    with pytest.raises(UserError, match="give one factory"):
        audit(noise_multiplier=1.0)
