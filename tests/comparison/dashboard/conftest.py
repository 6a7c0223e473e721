"""Records made up for the page, and a real browser to open it in."""

import copy
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from dpbench.comparison.dashboard.command import report
from dpbench.runs.config.compose import compose
from dpbench.runs.records.record import Record
from dpbench.system.files import write_atomically
from tests.omissions import extra

METHODS = ("sgd", "dpsgd", "dpsgd_f", "dpsgd_global")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
QUIET = [
    "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


WITHOUT_PLOTLY = """
const later = setTimeout;
globalThis.setTimeout = (call, ...rest) => call.name === "startPlotly" || later(call, ...rest);
"""


@pytest.fixture(scope="session")
def composed():
    """composed(*overrides): a plain configuration, composed once."""
    cache: dict[tuple[str, ...], dict] = {}

    def get(*overrides: str) -> dict:
        if overrides not in cache:
            cache[overrides] = compose(list(overrides))
        return copy.deepcopy(cache[overrides])

    return get


@pytest.fixture(scope="session")
def record_of(composed):
    """record_of(method=, seed=, epsilon=, accuracy=, ...): a record as a run would leave it."""

    def make(
        method="dpsgd",
        seed=0,
        epsilon=2.0,
        accuracy=0.8,
        dataset="digits",
        guarantee="proven",
        status="complete",
        ece=0.05,
        bins=True,
        audit=None,
        seconds=3.0,
        **settings,
    ) -> Record:
        little = 1e-9 * seed * len(method)  # differences that are quite equal decide nothing
        accuracy, ece = accuracy + little, ece + little
        config = composed(f"dataset={dataset}", f"method={method}")
        config["seed"], config["privacy"]["noise_multiplier"] = seed, 10 / max(epsilon, 0.1)
        config |= settings
        privacy = {
            "adjacency": "add or remove one example", "delta": 1e-5, "guarantee": guarantee,
            "why": "made up", "pld": epsilon, "rdp": 1.1 * epsilon, "gdp": 0.9 * epsilon,
            "claimed": 1.1 * epsilon, "noise_multiplier": 10 / max(epsilon, 0.1), "steps": 100,
            "ledger": [], **({"audit": audit} if audit else {}),
        }  # fmt: skip
        calibration = {"bins": {"count": [0, 40, 60], "confidence": [float("nan"), 0.6, 0.9],
                                "accuracy": [float("nan"), 0.5, 0.8]},
                       "histogram": {"confidence": [40, 60], "true_class": [50, 50]},
                       "interval": {"level": 0.95, "ece": [0.01, 0.09]},
                       "temperature": {"temperature": 1.2, "note": "made up"}}  # fmt: skip
        return Record(
            config=config,
            metrics={"test/accuracy": accuracy, "test/loss": 1 - accuracy, "test/ece": ece,
                     "test/mce": 2 * ece, "test/accuracy_gap": ece / 2},
            privacy=privacy,
            provenance={"device": "x86_64 (cpu)", "engine": "ghost", "seconds": seconds,
                        "threads": 1, "physical_batch_size": 256, "precision": "float32"},
            status=status,
            calibration=calibration if bins else {},
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """folder_of(records): a results folder that holds them."""

    def make(records) -> Path:
        folder = tmp_path_factory.mktemp("results")
        (folder / "runs").mkdir()
        for record in records:
            (folder / "runs" / f"{record.digest}.json").write_text(record.json())
        return folder

    return make


@pytest.fixture(scope="session")
def page_of(folder_of):
    """page_of(records): the path of the page that compares them."""

    def make(records) -> Path:
        folder = folder_of(records)
        return report([f"results_dir={folder}", f"out={folder / 'report.html'}"])

    return make


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium; tests that use it are skipped, with the reason, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason=extra("test"))
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH; scripts/browser installs it where it can")
    # Chromium's sandbox does not work for root.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=[*QUIET, *sandbox])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """opened(path, ...): the page in a fresh window; whatever it says or asks for is a failure.

    pictures: False leaves them out, which take longer than all else on the page.
    """
    contexts, faults = [], []

    def open_page(path: Path, hash_: str = "", pictures: bool = True, **settings):
        context = chromium.new_context(**{"viewport": {"width": 1300, "height": 900}, **settings})
        contexts.append(context)
        if not pictures:
            context.add_init_script(WITHOUT_PLOTLY)
        window = context.new_page()
        window.on("console", lambda said: faults.append(f"console: {said.text}"))
        window.on("pageerror", lambda error: faults.append(f"error: {error}"))
        window.on("dialog", lambda box: (faults.append(f"dialog: {box.message}"), box.dismiss()))
        address = path.as_uri()
        window.on(
            "request",
            lambda asked: (
                asked.url.partition("#")[0] == address
                or asked.url.startswith(("data:", "blob:"))
                or faults.append(f"request: {asked.url}")
            ),
        )
        window.goto(address + hash_)
        window.wait_for_selector("#part-utility .pictures > *")
        return window

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def spoiled(folder_of, record_of):
    """A folder with one record, and beside it whatever else can lie in such a folder."""
    good = record_of()
    folder = folder_of([good])
    older = json.loads(good.json()) | {"schema": 0}
    write_atomically(folder / "runs/truncated.json", good.json()[:200].encode())
    write_atomically(folder / "runs/older.json", json.dumps(older).encode())
    write_atomically(folder / "runs/empty.json", b"")
    write_atomically(folder / "runs/list.json", b"[1, 2]")
    write_atomically(folder / "runs/bytes.json", b"\xff\xfe\x00")
    write_atomically(folder / "tables/t.records.jsonl", (good.json() + "\n{\n").encode())
    return folder


@pytest.fixture(scope="module")
def records(record_of):
    """Two data sets, three methods, two budgets, three seeds; some without epsilon."""
    made = []
    sets = itertools.product(("digits", "adult"), METHODS[1:3], (1.0, 4.0), (0, 1, 2))
    for dataset, method, epsilon, seed in sets:
        accuracy = 0.6 + 0.03 * epsilon + 0.01 * seed + 0.02 * (method == "dpsgd_f")
        made.append(record_of(method, seed, epsilon, accuracy, dataset))
    made += [record_of("sgd", s, float("inf"), 0.9, guarantee="none") for s in (0, 1, 2)]
    made += [record_of("dpsgd_global", s, 1.0, 0.7, guarantee="none") for s in (0, 1, 2)]
    return made


@pytest.fixture(scope="module")
def path(records, page_of):
    return page_of(records)
