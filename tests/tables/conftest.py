"""The toy table, built."""

import pandas as pd
import pytest
from toy_table import PLAIN, RUNS

from dpbench.tables import build_table, table_spec


@pytest.fixture
def build():
    """Builds the toy table from a list of runs, with changes to the plain specification."""

    def _build(runs=RUNS, published=None, epsilon="3.41", impossible=None, notes=(), **changes):
        spec = table_spec({**PLAIN, **changes})
        return build_table(
            spec,
            pd.DataFrame(runs),
            published or {},
            epsilon=epsilon,
            impossible=impossible or {},
            notes=notes,
        )

    return _build
