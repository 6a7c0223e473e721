"""A toy table that every test of this folder can bend."""

from dataclasses import dataclass

import pytest

from dpbench.comparison.compare.side import AT_EDGE, Tuning
from dpbench.comparison.tables.conditions import Condition
from dpbench.comparison.tables.edition import PAPER_SCALE, Edition
from dpbench.comparison.tables.privacy import NotRun
from dpbench.comparison.tables.table import build_table
from dpbench.runs.config.table_file import Scale, table_file

PLAIN = {
    "title": "Toy",
    "paper": "Doe 2020, Table 1",
    "published": "toy/table1.csv",
    "published_runs": 4,
    "baseline": "sgd",
    "methods": ["sgd", "dpsgd", "fair"],
    "seeds": [0, 1],
    "groups": ["m", "f"],
    "spread": "standard error",
    "columns": {
        "acc_a": {"metric": "test/accuracy/m", "factor": 100, "digits": 1, "better": "higher"},
        "pi_ab": {"metric": "privacy_cost_gap", "factor": 100, "digits": 1, "better": "lower"},
    },
    "claims": {
        "fair": {
            "statement": "fair is more accurate than dpsgd.",
            "source": "section 5",
            "better": ["fair"],
            "than": ["dpsgd"],
            "in": ["acc_a"],
        }
    },
    "notes": ["The test set is also the validation set."],
}


@dataclass(frozen=True)
class ToyEdition(Edition):
    """An edition that says how the settings of its rows were chosen."""

    tuning: dict[str, Tuning]


def toy_edition(conditions=("",), scale_label="paper", at_edge=(), **changes):
    """The toy table at a scale, with changes to its file."""
    file = table_file({**PLAIN, **changes})
    under = tuple(Condition((("under", c),)) for c in conditions)
    changed = () if scale_label == PAPER_SCALE else (scale_label,)
    tuning = {row: Tuning(20, AT_EDGE) for row in at_edge}
    scale = PAPER_SCALE, Scale("", []), (), changed, "", ()
    edition = ToyEdition("toy_table1", file, under, *scale, tuning)
    edition.check()
    return edition


def toy_run(method, seed, accuracy, **changes):
    """One flat run; accuracy: of group m, group f has 0.9."""
    private = method != "sgd"
    row = {
        **{"dataset": "toy", "model": "mlp", "method": method, "variant": "corrected"},
        **{"seed": seed, "status": "complete"},
        **{"test/accuracy/m": accuracy, "test/accuracy/f": 0.9},
        **{"test/loss/m": 0.5, "test/loss/f": 0.4},
        **{"privacy/rdp": 3.41 if private else float("inf")},
        **{"privacy/pld": 3.1 if private else float("inf")},
        **{"privacy/gdp": 2.9 if private else float("inf")},
        **{"privacy/guarantee": "proven" if private else "none"},
        **{"privacy/why": "Gaussian." if private else "No noise."},
        **{"privacy/claimed": 3.41 if private else float("inf"), "privacy/delta": 1e-6},
        **{"privacy/arithmetic": "float" if private else None},
    }
    return {**row, **changes}


RUNS = [
    toy_run("sgd", 0, 0.80),
    toy_run("sgd", 1, 0.82),
    toy_run("dpsgd", 0, 0.70),
    toy_run("dpsgd", 1, 0.74),
]


@pytest.fixture
def plain():
    """The file, as YAML would give it."""
    return PLAIN


@pytest.fixture
def edition():
    """edition(**changes): see `toy_edition`."""
    return toy_edition


@pytest.fixture
def toy():
    return toy_edition()


@pytest.fixture
def run():
    """Makes one flat run."""
    return toy_run


@pytest.fixture
def runs():
    """Two seeds of sgd, then two of dpsgd."""
    return list(RUNS)


@pytest.fixture
def build():
    """Builds the toy table from a list of runs, with changes to its edition."""

    def _build(runs=RUNS, published=None, epsilon="3.41", reasons=None, notes=(), **changes):
        edition = toy_edition(**changes)
        return build_table(
            edition,
            runs,
            published or {},
            epsilon=dict.fromkeys(edition.labels, epsilon),
            notes=notes,
            not_run=NotRun(reasons or {}),
        )

    return _build
