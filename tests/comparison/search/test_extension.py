"""A search goes on beyond the end of a range at which its best trial lies."""

from dataclasses import replace

import pytest
from msgspec import structs

from dpbench.comparison.search.command import MOST, beyond, run_trials
from dpbench.comparison.search.report import render
from dpbench.comparison.search.request import parse
from dpbench.comparison.search.selection import Trial
from dpbench.system.errors import UserError
from tests.runs.records.plain_record import record

LOG = "optimizer.lr=tag(log,interval(0.01,1))"


def trial(number, accuracy=0.5, **values):
    measured = {"validation/accuracy": accuracy, "validation/loss": 1.0}
    values = {key.replace("__", "."): text for key, text in values.items()}
    return Trial(number, values, {"0": record(metrics=measured)})


def request_for(*arguments):
    return parse(["method=dpsgd", "dataset=digits", "extend=4", *arguments])


def lrs(*values, best):
    return [trial(n, 0.9 if v == best else 0.5, optimizer__lr=v) for n, v in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("best", "piece", "wider"),
    [
        ("0.9", (1, 10**0.5), (0.01, 10**0.5)),
        ("0.012", (0.01 / 10**0.5, 0.01), (0.01 / 10**0.5, 1)),
    ],
)
def test_the_piece_lies_beyond_the_end_of_the_best_trial(best, piece, wider):
    request = request_for(LOG)
    trials = lrs("0.012", "0.1", "0.9", best=best)
    space, added = beyond(request, request.space, trials)
    assert (added.ranges[0].low, added.ranges[0].high) == pytest.approx(piece)
    assert (space.ranges[0].low, space.ranges[0].high) == pytest.approx(wider)


def test_nothing_is_added_inside_or_by_values_and_pieces_that_are_refused():
    request = request_for(LOG)
    assert beyond(request, request.space, lrs("0.012", "0.1", "0.9", best="0.1")) is None
    request = request_for("method=dpsgd_quantile", "method.quantile=interval(0.1,0.95)")
    trials = [trial(1, 0.9, method__quantile="0.94"), trial(2, method__quantile="0.2")]
    assert beyond(request, request.space, trials) is None
    request = request_for("batch_size=tag(log,int(interval(1,64)))")
    trials = [trial(1, 0.9, batch_size="1"), trial(2, batch_size="60")]
    assert beyond(request, request.space, trials) is None


def test_other_ranges_keep_their_values():
    request = request_for(LOG, "batch_size=64,128")
    trials = [
        trial(1, 0.9, optimizer__lr="0.9", batch_size="64"),
        trial(2, optimizer__lr="0.02", batch_size="128"),
    ]
    _, added = beyond(request, request.space, trials)
    kept = [range_ for range_ in request.space.ranges if range_.key == "batch_size"]
    assert [range_ for range_ in added.ranges if range_.key == "batch_size"] == kept


@pytest.fixture
def scored(monkeypatch):
    """Trials without runs, whose accuracy is a function of the learning rate."""

    def score(by_lr):
        def run_batch(request, values, previous, outcomes):
            for number, value in enumerate(values, previous + 1):
                lr = value["optimizer.lr"]
                yield trial(number, by_lr(float(lr)), optimizer__lr=lr)

        monkeypatch.setattr("dpbench.search.command._run_batch", run_batch)

    return score


def test_the_search_goes_on_until_the_best_lies_inside(scored):
    scored(lambda lr: 1 / (1 + abs(lr - 5)))
    request = request_for(LOG, "N=8", "extend=6")
    trials = run_trials(request)
    best = max(trials, key=lambda trial: trial.mean("validation/accuracy"))
    assert 3 < float(best.values["optimizer.lr"]) < 8
    assert len(trials) > request.count
    assert len({trial.values["optimizer.lr"] for trial in trials}) == len(trials)
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
    page = render(request, trials)["md"].decode()
    assert "The trials after the first 8 were added beyond ends" in page
    assert "at the upper end" not in page


def test_the_search_goes_on_beyond_an_end_at_which_the_best_finalist_lies(monkeypatch):
    request = request_for(LOG, "N=32", "extend=8", "finalists=32")

    def run_batch(request, values, previous, outcomes):
        for number, value in enumerate(values, previous + 1):
            lr = float(value["optimizer.lr"])
            lucky = request.seeds == ("0",) and 0.05 < lr < 0.5
            yield trial(number, 0.99 if lucky else 0.9 / (1 + abs(lr - 2)), optimizer__lr=str(lr))

    monkeypatch.setattr("dpbench.comparison.search.command._run_batch", run_batch)
    trials = run_trials(request)
    assert any(float(each.values["optimizer.lr"]) > 1 for each in trials)
    without = structs.replace(request.options, finalists=0)
    assert len(run_trials(replace(request, options=without))) == 32


def test_a_search_without_an_end_stops(scored):
    scored(lambda lr: lr)
    trials = run_trials(request_for(LOG, "N=4", "extend=2"))
    assert len(trials) == 4 + 2 * MOST


def test_without_extend_no_trial_is_added(scored):
    scored(lambda lr: lr)
    assert len(run_trials(request_for(LOG, "N=4", "extend=0"))) == 4


def test_a_private_search_cannot_extend():
    with pytest.raises(UserError, match="extend is not for private=true"):
        request_for(LOG, "private=true")
