"""`dpbench search repeat=N`: independent searches, and one page of all."""

import re
import statistics

import pandas as pd
import pytest

from dpbench.comparison.search.command import search
from dpbench.comparison.search.request import repeated

SMALL = ["epochs=1", "model=logistic", "batch_size=512", "dataset=digits", "extend=0"]
LR = "optimizer.lr=tag(log,interval(1e-2,1))"


def test_no_two_searches_share_draws_or_seeds():
    requests = repeated([*SMALL, LR, "repeat=3", "name=some", "seed=7", "draw=2", "finalists=1"])
    assert [request.name for request in requests] == ["some-1", "some-2", "some-3"]
    assert [request.options.draw for request in requests] == [2, 3, 4]
    seeds = [seed for request in requests for seed in (*request.seeds, *request.final_seeds)]
    assert seeds == [str(seed) for seed in range(7, 25)]
    (alone,) = repeated([*SMALL, LR, "name=some", "seed=7"])
    assert (alone.name, alone.seeds) == ("some", ("7",))


@pytest.mark.slow
def test_the_page_has_what_each_search_chose_and_an_interval_over_the_searches(tmp_path):
    asked = [*SMALL, LR, "N=8", "name=some", f"results_dir={tmp_path}"]
    text = search([*asked, "repeat=2"])
    assert (tmp_path / "search" / "some.md").read_text() == text
    tried = [pd.read_csv(tmp_path / "search" / f"some-{number}.csv") for number in (1, 2)]
    best = [100 * table["validation/accuracy"][0] for table in tried]
    assert all(f"| some-{n} | {t['trial'][0]} |" in text for n, t in enumerate(tried, 1))
    assert f"score {statistics.fmean(best):.2f} on average" in text
    (one,) = re.findall(r"\| 1 \| (\S+) \[(\S+), (\S+)\] \|", text)
    means = [100 * table["validation/accuracy"].mean() for table in tried]
    error = statistics.stdev(means) / 2**0.5
    expected = [statistics.fmean(means) + side * 12.706 * error for side in (0, -1, 1)]
    assert [float(number) for number in one] == pytest.approx(expected, abs=0.01)

    # The second search is the one that its own settings make.
    written = (tmp_path / "search" / "some-2.csv").read_bytes()
    search([*asked[:-2], "name=other", "draw=1", "seed=6", asked[-1]])
    assert (tmp_path / "search" / "other.csv").read_bytes() == written
