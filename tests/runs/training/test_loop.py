"""A run that was put away and taken up again is the one that never stopped, to the last bit."""

import copy
import json
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.examples import Data, Split
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import options
from dpbench.runs.diagnostics.bias import BiasDiagnostics
from dpbench.runs.diagnostics.curves import CurveDiagnostics
from dpbench.runs.diagnostics.misalignment import MisalignmentDiagnostics
from dpbench.runs.execution.prepare import build
from dpbench.runs.training import plan, start
from dpbench.runs.training.checkpoints import Checkpoints
from dpbench.runs.training.loop import Training
from dpbench.runs.training.run import Run
from dpbench.runs.training.trainer import fit
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.schedules import Linear, Pieces, Schedules
from dpbench.step.methods import dp_mf_blt
from dpbench.step.methods.dicesgd import ErrorFeedback

pytestmark = pytest.mark.usefixtures("engines_checked_once")

NOWHERE = Path("/nowhere")
STEPS = 12  # 3 epochs of 4


@dataclass(frozen=True)
class Made:
    """Made-up images of two classes, in two groups."""

    name = "made"
    shape = (1, 4, 4)
    task = "classification"
    classes = 2
    groups = ("a", "b")
    train_size = 48
    notes = ()

    def load(self, folder: Path, seed: int) -> Data:
        inputs = torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
        targets, groups = (inputs.sum((1, 2, 3)) > 0).long(), torch.arange(64) % 2
        parts = zip(*(t.split(48) for t in (inputs, targets, groups)), strict=True)
        return Data(*(Split(*part) for part in parts))


@dataclass(frozen=True)
class Dropping:
    """A perceptron with dropout, which draws from torch's own generator."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, classes)
        )


class Interrupted(Exception):
    """Stands in for whatever ends a process."""


class Kept:
    """Checkpoints on disk after step `at` of this process, which ends after step `ends`."""

    def __init__(self, folder: Path, at: int, ends: int | None = None):
        folder.mkdir(exist_ok=True)
        self._on_disk, self._at, self._ends = Checkpoints(folder, None), at, ends
        self._steps, self.resume_from_last = count(1), self._on_disk.resume_from_last
        self.folder = self._on_disk.folder

    def due(self) -> bool:
        step = next(self._steps)
        if step == self._ends:
            raise Interrupted
        return step == self._at

    def save(self, state: dict, conditions: dict) -> None:
        self.state = copy.deepcopy(state)
        self._on_disk.save(state, conditions)


@pytest.fixture(autouse=True, scope="module")
def no_accountants(brief_statement):
    """Epsilons follow from the ledger, and take longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "statement", brief_statement)
        yield


def measured(record) -> str:
    """All of a record but how long it took; as text, in which NaN equals NaN."""
    said = json.loads(record.json())
    del said["checksum"]
    for varying in ("seconds", "peak_memory_mib", "resumed"):
        del said["provenance"][varying]
    return json.dumps(said)


def leaves(state, path: str = "") -> dict:
    """Everything in a state by where it is, to the last bit."""
    if isinstance(state, dict | list | tuple):
        inner = state.items() if isinstance(state, dict) else enumerate(state)
        return {k: v for name, part in inner for k, v in leaves(part, f"{path}/{name}").items()}
    if isinstance(state, torch.Tensor):
        return {path: (state.dtype, state.shape, state.numpy().tobytes())}
    return {path: repr(state)}


def carried_out(run: Run, kept: Kept) -> tuple[str, dict]:
    """What a run measured, and all that its last step left behind."""
    record = fit(run, NOWHERE, True, kept)
    del kept.state["parts"]["usage"]
    return measured(record), leaves(kept.state)


def check_resumed(run: Run, at: int, lost: int) -> None:
    """Put away after step `at` and ended `lost` steps later, it is taken up to the same end."""
    with TemporaryDirectory() as folder:
        whole, parts = Path(folder, "whole"), Path(folder, "parts")
        said, state = carried_out(run, Kept(whole, STEPS))
        with pytest.raises(Interrupted):
            fit(run, NOWHERE, True, Kept(parts, at, ends=at + lost))
        said_again, state_again = carried_out(run, Kept(parts, STEPS - at))
    assert state_again == state
    assert said_again == said


@cache
def run_of(*overrides: str) -> Run:
    """A run of twelve steps on what is made up here, composed but for that."""
    composed = build(compose(["batch_size=12", "epochs=3", "privacy=noise1", *overrides]))
    return replace(composed, dataset=Made(), model=Dropping())


BIAS = BiasDiagnostics(
    every=2,
    examples="batch",
    probe_size=8,
    chunk=9,
    groups=None,
    quantiles=[0.5],
    sizes=[4],
    repeats=1,
)
MISALIGNMENT = MisalignmentDiagnostics(
    every=3, hutchinson=1, eigenvalues=False, chunk=64, groups=None
)
CURVES = CurveDiagnostics(steps=3, epochs=None, train=True)
VIEWS = ShiftsFlips(views=2, shift=1, padding="zero", flip="horizontal", probability=0.5)
FALLING = Schedules(bound=1.0, lr=Linear(1.0, 0.5), noise=Pieces((1.0, 2.0, 1.0), (0.3, 0.6)))


USERS = ["users=iid", "users.number=24", "batch_size=6"]
NEEDS = {
    "dpsgld": ["privacy=follows", "optimizer=sgd", "optimizer.momentum=0"],
    "dpsghmc": ["privacy=follows", "optimizer=momentum"],
    "dp_fedsgd": USERS,
    "dp_fedavg": USERS,
}
COMBINED = ["dpsgd_quantile method.style=layerwise", "dp_fedsgd method.local_batch_size=1"]


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", [*options("method"), *COMBINED])
def test_every_method_goes_on_as_if_never_stopped(name):
    needs = NEEDS.get(name.split()[0], [])
    run = run_of(*f"method={name}".split(), "optimizer=adam", "ema_decay=0.9", *needs)
    schedule = replace(FALLING, noise=1) if name in ("dpsgld", "dpsghmc") else FALLING
    check_resumed(replace(run, schedule=schedule), at=6, lost=3)


def test_curves_end_at_the_last_parameters_where_their_average_is_evaluated():
    run = replace(run_of("ema_decay=0.9"), diagnostics=CURVES)
    averaged, plain = (fit(r, NOWHERE, True) for r in (run, replace(run, ema_decay=None)))
    assert averaged.diagnostics == plain.diagnostics
    assert averaged.metrics["test/loss"] != plain.metrics["test/loss"]


@pytest.mark.slow
def test_a_run_is_not_resumed_with_other_noise_than_it_had(tmp_path, monkeypatch):
    """Another processor may find another matrix in the last digits."""
    run = run_of("method=dp_mf_blt")
    with pytest.raises(Interrupted):
        fit(run, NOWHERE, True, Kept(tmp_path, 6, ends=7))
    found = dp_mf_blt.optimal

    def elsewhere(*about):
        decays, weights = found(*about)
        return decays, (weights[0] + 1e-4, *weights[1:])

    monkeypatch.setattr(dp_mf_blt, "optimal", elsewhere)
    with pytest.warns(UserWarning, match="was written with ledger=.*: it is ignored"):
        record = fit(run, NOWHERE, True, Kept(tmp_path, STEPS))
    assert record.provenance["resumed"] == 0


WITH = {
    "a permutation": {"sampler": "shuffled"},
    "cut batches": {"sampler": "truncated", "batch_limit": 12},
    "an allocation": {"sampler": "allocation"},
    "views": {"augmentation": VIEWS, "physical_batch_size": 5},
    "bias": {"diagnostics": BIAS, "engine": "loop"},
    "misalignment": {"diagnostics": MISALIGNMENT},
    "curves": {"diagnostics": CURVES},
}


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4, 7])  # 4 ends an epoch
@pytest.mark.parametrize("feature", WITH)
def test_whatever_goes_with_a_run_goes_on_as_if_never_stopped(feature, at):
    check_resumed(replace(run_of("method=dpsgd_global_adapt"), **WITH[feature]), at, lost=2)


EVERYTHING = [
    *(f"parts/step/{k}" for k in ("steps_done", "model", "optimizer", "clip", "noise", "counts")),
    *(f"parts/batches/{k}" for k in ("epoch_start", "drawn", "views")),
    *(f"parts/observer/{k}" for k in ("steps", "epoch", "columns")),
    *(f"parts/average/{k}" for k in ("average", "steps")),
    *("history", "reports", "noise_runs", "torch"),
]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [*(("dpsgd_quantile", path) for path in EVERYTHING), ("dpsat", "parts/step/gradient")]
    + [
        (name, "parts/step/update")
        for name in ("doppler", "disk", "dp_adam_bc", "geoclip", "dp_muon")
    ]
    + [(name, "parts/step/correlated_noise") for name in ("dp_mf", "dp_mf_blt", "dp_lambda_cgd")]
    + [("dicesgd", "parts/step/clip"), ("raco", "parts/step/seam")],
)
def test_without_any_part_of_its_state_a_run_would_not_go_on_as_it_was(method, path, monkeypatch):
    """So that the tests here see whatever is not put away; some of it is refused even before."""
    load = Training.load_state_dict
    *above, name = path.split("/")

    def forgetful(training, state):
        start, kept = training.state_dict(), state
        for key in above:
            start, kept = start[key], kept[key]
        kept[name] = start[name]
        load(training, state)

    monkeypatch.setattr(Training, "load_state_dict", forgetful)
    run = run_of(f"method={method}", "optimizer=adam", "ema_decay=0.9")
    run = replace(run, augmentation=VIEWS, diagnostics=MISALIGNMENT, schedule=FALLING)
    with pytest.raises((AssertionError, UserWarning)):
        check_resumed(run, at=6, lost=1)


def test_a_run_keeps_the_sizes_of_classes_that_it_began_with(tmp_path, monkeypatch):
    """They are released once: what a resumed process measures, of other noise, is thrown away."""
    run = replace(run_of(), class_count_noise_multiplier=2.0)
    check_resumed(run, at=6, lost=1)
    measure, processes = start.noisy_counts, count()

    def otherwise(*arguments):
        counts = measure(*arguments)
        return counts + 50 * next(processes) * torch.arange(len(counts))

    monkeypatch.setattr(start, "noisy_counts", otherwise)
    kept = Kept(tmp_path, 6, ends=7)
    with pytest.raises(Interrupted):
        fit(run, NOWHERE, True, kept)
    again = Kept(tmp_path, STEPS - 6)
    fit(run, NOWHERE, True, again)
    assert next(processes) == 2
    first, last = (
        {path: of for path, of in leaves(k.state).items() if "weighted" in path}
        for k in (kept, again)
    )
    assert first == last != {}


@pytest.mark.parametrize(
    ("method", "part", "name"),
    [
        ("dp_mf", "correlated_noise", "coefficients"),
        ("dp_mf_blt", "correlated_noise", "decays"),
        ("dp_lambda_cgd", "correlated_noise", "taken"),
        ("dicesgd", "clip", "error_bound"),
    ],
)
def test_a_forged_state_changes_no_factorisation_and_no_bound(method, part, name, monkeypatch):
    load = Training.load_state_dict

    def forged(training, state):
        state["parts"]["step"][part][name] = torch.zeros(1)
        load(training, state)

    monkeypatch.setattr(Training, "load_state_dict", forged)
    with pytest.raises(UserWarning, match=r"does not belong to this run \(ValueError\)"):
        check_resumed(run_of(f"method={method}"), at=6, lost=1)


@dataclass(frozen=True)
class Recalling(Gaussian):
    """Gaussian noise that remembers the sum before, as a plug-in's may."""

    before: torch.Tensor | None = None

    def advance(self, total, stream):
        return replace(self, before=total.clone())


@dataclass(frozen=True)
class Residual(ErrorFeedback):
    """Error feedback that also remembers the last sum, under a name of its own."""

    last: torch.Tensor | None = None

    def carried(self, total):
        return replace(super().carried(total), last=total.clone())


@pytest.mark.slow
def test_state_of_a_plug_in_may_have_any_name():
    run = run_of("method=dpsgd")
    noisy = replace(run, method=replace(run.method, noise=Recalling()))
    check_resumed(noisy, at=6, lost=1)
    run = run_of("method=dicesgd")
    clip = Residual(**{f.name: getattr(run.method.clip, f.name) for f in fields(ErrorFeedback)})
    check_resumed(replace(run, method=replace(run.method, clip=clip)), at=6, lost=1)


FEATURES = {
    "sampler": st.sampled_from(["poisson", "shuffled"]),  # the others have no account of FALLING
    "ema_decay": st.sampled_from([None, 0.9]),
    "schedule": st.sampled_from([None, FALLING]),
    "augmentation": st.sampled_from([None, VIEWS]),
    "diagnostics": st.sampled_from([None, BIAS, MISALIGNMENT, CURVES]),
    "physical_batch_size": st.sampled_from([None, 5]),
    "engine": st.sampled_from(["ghost", "vmap", "loop"]),
}
METHODS = ["dpsgd", "dpsgd_quantile", "dpsgd_f", "dpsgd_global_adapt", "dpsat"]


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from(METHODS),
    st.sampled_from(options("optimizer")),
    st.fixed_dictionaries(FEATURES),
    st.integers(1, STEPS - 1),
    st.integers(1, STEPS),
)
def test_all_of_it_together_and_wherever_it_stops(method, optimizer, features, at, lost):
    run = replace(run_of(f"method={method}"), optimizer=run_of(f"optimizer={optimizer}").optimizer)
    check_resumed(replace(run, **features), at, min(lost, STEPS - at))
