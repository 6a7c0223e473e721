"""What the tests of every room share: the original data files, and a small private step."""

import gc
import io
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from rich.console import Console
from scipy import special, stats
from torch import nn

from dpbench.learning.data import adult, california, cifar, dutch, mnist, snli, wine
from dpbench.learning.data.examples import Batch
from dpbench.learning.data.fetch.download import Source
from dpbench.learning.models.architecture import cross_entropy
from dpbench.privacy.ledger import to_plain
from dpbench.runs.figures import formats
from dpbench.step.gradients import choice, make_engine
from dpbench.step.gradients.engine import Engine
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import Stream, seeded
from dpbench.system import progress
from dpbench.system.seeds import seed_torch
from tests.endless import LimitedProcess, hear_signals
from tests.omissions import omissions
from tests.plugin_files import FILES, write


def pytest_configure():
    hear_signals()


@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    gc.disable()


def pytest_collection_finish():
    """Nobody searches the million objects of the modules and cases for garbage again."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter):
    """Says what was skipped, or writes it to $SKIPPED, which scripts/test prints at its end."""
    if not (reports := terminalreporter.stats.get("skipped")):
        return
    if path := os.environ.get("SKIPPED"):
        Path(path).write_text(f"{omissions(reports)}\n")
    else:
        terminalreporter.write_line(omissions(reports))


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """Marks all cases of a test that is `sampled(n)` as `spare`, but for n, evenly spread: others
    at each commit, so that none is left out for long."""
    first = commit_number()
    cases = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("sampled")) and not item.get_closest_marker("long"):
            cases[item.parent, item.originalname, *mark.args].append(item)
    for (*_, number), sampled in cases.items():
        kept = {(first + len(sampled) * k // number) % len(sampled) for k in range(number)}
        for i, item in enumerate(sampled):
            if i not in kept:
                item.add_marker("spare")


def commit_number() -> int:
    """A number that follows from the commit that is tested; 0 where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found[:8], 16)


UNPACK = Path(__file__).parents[2] / "shared" / "data" / "unpack"
NEEDED = (*adult.SOURCES, dutch.SOURCE, *mnist.TRAIN, *mnist.TEST)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """A data folder with the original files; tests that need it carry the mark `data`."""
    return _originals(NEEDED, "adult", "dutch", "mnist")


@pytest.fixture(scope="session")
def cifar_folder() -> Path:
    """A data folder with the original files of CIFAR-10, for tests with the mark `data`."""
    return _originals((*cifar.TRAIN_10, *cifar.TEST_10), "cifar10")


@pytest.fixture(scope="session")
def regression_folder() -> Path:
    """A data folder with the original files of the regression sets, for tests marked `data`."""
    return _originals((california.SOURCE, wine.SOURCE), "california", "wine")


@pytest.fixture(scope="session")
def snli_folder() -> Path:
    """A data folder with the original test and development files of SNLI, for tests marked
    `data`."""
    return _originals((snli.TEST, snli.DEV), "snli")


def _originals(needed: tuple[Source, ...], *names: str) -> Path:
    named = Path(os.environ.get("DPBENCH_DATA", "/nowhere"))
    if all((named / source.path).exists() for source in needed):
        return named
    if not UNPACK.exists():
        pytest.skip("the original files are not in $DPBENCH_DATA: dpbench data downloads them")
    folder = Path(tempfile.gettempdir()) / "dpbench-test-data"
    with FileLock(f"{folder}.lock"):  # several test processes share the folder
        subprocess.run([sys.executable, UNPACK, folder, *names], check=True)
    return folder


@pytest.fixture(scope="session")
def batch_of():
    """batch_of(n): made-up examples with 5 features of very different size, 3 classes, 3 groups."""

    def make(n: int, groups: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64) -> Batch:
        draw = torch.Generator().manual_seed(seed)
        size = torch.logspace(-1, 1.5, n, dtype=dtype).unsqueeze(1)
        inputs = torch.randn(n, 5, dtype=dtype, generator=draw) * size
        targets, labels = (torch.randint(0, k, (n,), generator=draw) for k in (3, groups))
        return Batch(inputs, targets, labels)

    return make


@pytest.fixture(scope="session")
def users_of(batch_of):
    """users_of(n): as batch_of, with users of 1 to 4 examples each, in rows filled up to 4."""

    def make(n: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Batch:
        flat = batch_of(4 * n, seed=seed, dtype=dtype)
        sizes = torch.randint(1, 5, (n, 1), generator=torch.Generator().manual_seed(seed))
        return Batch(
            flat.inputs.view(n, 4, 5),
            flat.targets.view(n, 4),
            torch.zeros(n, dtype=torch.long),
            torch.arange(4) < sizes,
            torch.arange(n),
        )

    return make


@pytest.fixture(scope="session")
def brief_statement():
    """In the place of `statement`: what a record needs, without asking any accountant."""

    def statement(ledger, *_) -> dict:
        return {
            **dict.fromkeys(("rdp", "pld", "gdp", "claimed")),
            **{"guarantee": "none", "why": "not asked", "delta": 1e-6, "noise_multiplier": 1.0},
            **{"steps": ledger.steps, "ledger": to_plain(ledger)},
        }

    return statement


@pytest.fixture
def no_statement(monkeypatch, brief_statement):
    """Noise is calibrated where an epsilon is given, and no more is asked of the accountants."""
    monkeypatch.setattr("dpbench.training.plan.statement", brief_statement)


@pytest.fixture(scope="session")
def stream_of():
    """stream_of(seed): a random stream that is the same for the same seed."""
    return lambda seed=0: seeded("tests", seed, "", torch.device("cpu"))


@pytest.fixture(scope="session")
def released():
    """released(total, scale, stream): total [D] with Gaussian noise, by hand, in numpy."""

    def add(total: np.ndarray, scale: float, stream: Stream) -> np.ndarray:
        bits = [int(drawn) for drawn in stream.bits(len(total))]
        outside = np.array([abs(number + 0.5) / 2**64 for number in bits])
        signs = np.array([1 if number >= 0 else -1 for number in bits])
        noisy = total + scale * signs * -special.ndtri(outside)
        step = 2.0 ** (math.floor(math.log2(scale)) - 20)
        return np.round(noisy / step) * step

    return add


def unchanged(model: nn.Module) -> nn.Module:
    return model


@pytest.fixture(scope="session")
def step_of(batch_of, stream_of):
    """step_of(method): its private step on a small perceptron of 579 parameters in float64.

    around: makes another model of the perceptron. An engine is checked with the first model that it
    is made for; the others are the same.
    """
    checked = set()

    def engine_of(name: str, dtype: torch.dtype, around: Callable) -> Engine:
        with torch.random.fork_rng():
            seed_torch(0, torch.device("cpu"))
            model = around(nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 3)).to(dtype))
        with pytest.MonkeyPatch.context() as patch:
            if (name, dtype, around) in checked:
                patch.setattr(choice, "refuse_coupling", lambda *_: None)
                patch.setattr(choice, "disagreement", lambda *_: None)
            made = make_engine(name, model, cross_entropy, batch_of(2, dtype=dtype))
        checked.add((name, dtype, around))
        return made

    def make(
        method: Method,
        *,
        engine: str = "auto",
        physical: int | None = None,
        multiplier: float = 1.0,
        expected: float = 8.0,
        lr: float = 0.1,
        noise_seed: int = 1,
        count_seed: int = 2,
        dtype: torch.dtype = torch.float64,
        around: Callable[[nn.Module], nn.Module] = unchanged,
    ) -> PrivateStep:
        made = engine_of(engine, dtype, around)
        return PrivateStep(
            engine=made,
            method=method,
            optimizer=torch.optim.SGD([made.parameters.theta], lr=lr),
            noise_multiplier=multiplier,
            expected_batch_size=expected,
            physical=PhysicalBatches(physical),
            noise_stream=stream_of(noise_seed),
            count_stream=stream_of(count_seed),
        )

    return make


@pytest.fixture(scope="session")
def variance_p():
    """variance_p(sample, scale): two-sided p-value of the variance of N(0, scale^2)."""

    def p_value(sample: torch.Tensor, scale: float) -> float:
        law = stats.chi2(sample.numel())
        statistic = float((sample.double() / scale).square().sum())
        return 2 * min(law.cdf(statistic), law.sf(statistic))

    return p_value


def remembered(load):
    """A source's method that parses a file again only where it has changed."""
    results = {}

    def from_memory(source: ConfigSource, config_path: str) -> ConfigResult:
        file = Path(source.path, source._normalize_file_name(config_path))
        changed = file.stat().st_mtime_ns if file.exists() else None  # a package's never do
        key = (source.provider, file, changed)
        if key not in results:
            results[key] = pickle.dumps(load(source, config_path))
        return pickle.loads(results[key])

    return from_memory


@pytest.fixture(autouse=True, scope="session")
def files_parsed_once():
    """Hydra parses 27 files for a configuration, and a test process composes hundreds."""
    Plugins.instance()  # which registers the sources
    with pytest.MonkeyPatch.context() as patch:
        for source in map(SourcesRegistry.instance().resolve, ("file", "pkg")):
            patch.setattr(source, "load_config", remembered(source.load_config))
        yield


@pytest.fixture(autouse=True, scope="session")
def coarse_pictures():
    """No test looks at a pixel of a figure, and 300 of them to an inch take the most time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "DPI", 50)
        yield


@pytest.fixture(autouse=True, scope="session")
def unsynced_files():
    """No test cuts the power, and to wait for the disk takes longer than to write small files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def limited_processes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", LimitedProcess)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors gain nothing from threads, and test processes would fight for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The folder that a plug-in is installed in, on Python's path."""
    folder = write(tmp_path / "site", FILES)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "clipworks"]:
        del sys.modules[name]


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal was given to show."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "display", lambda *about: progress.Bar(console, *about))
    return shown


@pytest.fixture
def log(monkeypatch):
    """As where standard error is a file."""
    monkeypatch.setattr(progress, "display", progress.LogLines)
