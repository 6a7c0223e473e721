import pandas as pd

from dpbench.tables.privacy import privacy_grid
from dpbench.tables.runs import Row

SAID = {"rdp": 6.5, "pld": 5.13, "gdp": 1.25, "claimed": 6.5, "delta": 1e-6}
PLAN = {**SAID, "guarantee": "proven", "why": "Gaussian.", "steps": 9}


def test_a_row_that_lacks_what_it_needs_shows_its_plan_and_says_so():
    rows = [Row("snli", method, "corrected", pd.DataFrame()) for method in ("dpsgd", "sgd", "bam")]
    grid = privacy_grid(rows, {"snli": "1.25"}, "sgd", {"snli, dpsgd": PLAN})
    (line,) = grid.rows
    assert line[:6] == ("snli, dpsgd", "1.25", "6.50", "6.50", "5.13", "1.25")
    assert line[-1] == "Gaussian. Not run: as planned."
    assert privacy_grid(rows, {}, "sgd").rows == ()
