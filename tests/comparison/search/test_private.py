"""`dpbench search private=true`: what is released, what it costs, and what is refused."""

import json
import os
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec import structs
from scipy.stats import chisquare

from dpbench.comparison.search.command import search
from dpbench.comparison.search.planned_trials import plan_trials
from dpbench.comparison.search.private import draw_trials, key_path, select, stream_of
from dpbench.comparison.search.request import parse
from dpbench.learning.data.custom.checksums import checksum
from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.privacy.accountants import rdp
from dpbench.privacy.private_selection import Repetitions, selection_costs
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.epsilon import rounded_up
from dpbench.runs.records.reading import load
from dpbench.runs.records.trained_model import load_model
from dpbench.step.mechanism.streams import CipherStream, secure
from dpbench.system.errors import UserError

SMALL = ["epochs=1", "model=logistic", "batch_size=512", "private=true", "score_noise_multiplier=2"]
LR = "optimizer.lr=0.01,0.1,1"


def asked(tmp_path, *more):
    return [*SMALL, LR, "trials=4", "N=3", "name=some", f"results_dir={tmp_path}", *more]


def records(tmp_path):
    return {path.stem: load(path) for path in (tmp_path / "runs").iterdir()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    return folder, search(asked(folder, "seed=3"))


@pytest.mark.slow
def test_the_best_trial_by_its_noisy_score_is_released_and_no_other(finished):
    folder, text = finished
    found = records(folder)
    assert len(found) > 1
    best = max(found, key=lambda name: found[name].metrics[NOISY_ACCURACY])
    (row,) = pd.read_csv(folder / "search" / "some.csv").to_dict("records")
    assert "record" not in row
    assert row["noisy_accuracy"] == found[best].metrics[NOISY_ACCURACY]
    assert row["optimizer.lr"] == found[best].config["optimizer"]["lr"]
    for name, record in found.items():
        assert (f"record={name}" in text) == (name == best)
        exact = f"{100 * record.metrics['validation/accuracy']:.2f}"
        assert exact not in text
    assert f"{100 * row['noisy_accuracy']:.2f}%" in text


def test_no_page_says_how_many_trials_there_were_or_has_a_digest_to_guess_by(finished):
    folder, text = finished
    assert "seed=3" not in text
    names = [record.config["trial"] for record in records(folder).values()]
    assert len({*names}) == len(names)
    assert all(len(name) == 16 for name in names)
    folder, _ = finished
    pages = "".join(path.read_text() for path in (folder / "search").glob("some.*"))
    for name, record in records(folder).items():
        assert name not in pages
        assert record.config["trial"] not in pages


def test_the_name_of_a_page_tells_nothing_of_seed_and_data(tmp_path):
    unnamed = [o for o in asked(tmp_path) if o != "name=some"]
    first, second = (parse([*unnamed, seed]) for seed in ("seed=3", "seed=4"))
    assert first.name == second.name
    assert first.identity != second.identity


@pytest.mark.slow
def test_a_page_says_what_of_the_data_no_epsilon_covers(tmp_path):
    table = tmp_path / "mine.csv"
    rows = "".join(f"{row % 7},{row % 2}\n" for row in range(400))
    table.write_text(f"x,y\n{rows}")
    words = [o for o in asked(tmp_path, "seed=3") if not o.startswith("batch_size")]
    known = checksum(table)
    text = search(
        [
            *words,
            "batch_size=64",
            "dataset=csv",
            f"dataset.file={table}",
            "dataset.target=y",
            f"dataset.checksum={known}",
        ]
    )
    assert "which no epsilon covers" in text
    assert "`dataset.target=y`" in text
    pages = "".join(page.read_text() for page in (tmp_path / "search").glob("some.*"))
    assert known not in pages
    assert str(table) not in pages
    (line,) = [line for line in text.splitlines() if line.startswith("To train on all examples")]
    assert (
        prepare(run_config(shlex.split(line.partition(": dpbench run ")[2])))[0].dataset.name
        == "mine"
    )


def test_the_page_shows_the_epsilons_of_search_and_trial(finished):
    folder, text = finished
    (row,) = pd.read_csv(folder / "search" / "some.csv").to_dict("records")
    (record, *_) = records(folder).values()
    assert record.privacy["rdp"] == pytest.approx(row["rdp/trial"])
    assert record.privacy["pld"] == pytest.approx(row["epsilon/trial"])
    ledger = prepare(run_config(["epochs=1", *SMALL[1:3], "validation=0.2", SMALL[4]]))[1].ledger
    both = selection_costs([ledger], Repetitions("negative_binomial", 4.0), row["delta"])
    for cost, what in zip(both, ("trial", "search"), strict=True):
        found = row[f"epsilon/{what}"], row[f"rdp/{what}"]
        assert found == pytest.approx((cost.epsilon, cost.rdp))
    assert row["by"] == "pld"
    assert row["epsilon/search"] > row["epsilon/trial"]
    epsilon, by_divergences = (rounded_up(row[f"{key}/search"], 3) for key in ("epsilon", "rdp"))
    assert f"| the whole search | {epsilon} | PLD | {by_divergences} |" in text


@pytest.mark.slow
def test_the_chosen_model_is_kept_for_who_asks_and_can_be_loaded(tmp_path):
    text = search(asked(tmp_path, "seed=3", "save_model=true"))
    path = text.partition("The chosen model: ")[2].partition(". No epsilon")[0]
    best = max(records(tmp_path).items(), key=lambda found: found[1].metrics[NOISY_ACCURACY])
    assert path == str(tmp_path / "models" / f"{best[0]}.pt")
    assert load_model(path)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    pages = "".join(page.read_text() for page in (tmp_path / "search").glob("some.*"))
    assert best[0] not in pages


def test_the_command_that_trains_on_all_examples_can_be_given(finished):
    _, text = finished
    (line,) = [line for line in text.splitlines() if line.startswith("To train on all examples")]
    words = line.partition(": dpbench run ")[2].split()
    run, _ = prepare(run_config(words))
    assert run.score_noise_multiplier is None
    assert not any(word.startswith("seed=") for word in words)
    assert not run.zero_out


@pytest.mark.slow
def test_trials_share_no_noise_even_of_one_candidate(tmp_path):
    only = [o for o in asked(tmp_path, "seed=3") if o != LR] + ["optimizer.lr=0.1,0.1"]
    select(parse(only))
    found = list(records(tmp_path).values())
    assert len(found) > 1
    for metric in ("train_set/loss", NOISY_ACCURACY):
        assert len({record.metrics[metric] for record in found}) == len(found)
    assert len({record.config["seed"] for record in found}) == 1


def test_the_same_command_gives_the_same_search_without_training(finished, monkeypatch):
    folder, text = finished
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    assert search(asked(folder, "seed=3")) == text


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("target", "candidates"),
    [(3.0, ["batch_size=128,512"]), (0.9, []), (0.4, []), (40.0, ["epochs=1,3"])],
)
def test_trials_are_calibrated_to_the_epsilon_of_the_whole_search(target, candidates, tmp_path):
    more = [*candidates, "score_noise_multiplier=20", f"epsilon={target}"]
    words = [o for o in asked(tmp_path) if o.split("=")[0] not in keys(more)]
    planned = plan_trials(parse([*words, *more]))
    assert 0.99 * target < planned.search.epsilon <= target
    for candidate in planned.candidates:
        run, plan = prepare(planned.request.trial_run(candidate, "t"))
        assert rdp(plan.ledger, run.privacy.delta) <= planned.trial.rdp
    assert len(set(planned.ledgers)) == (2 if candidates else 1)
    larger = planned.request.with_trial_epsilon(1.02 * run.privacy.epsilon)
    without = structs.replace(larger.options, epsilon=None)
    assert plan_trials(replace(larger, options=without)).search.epsilon > target


def test_the_epsilon_of_a_search_is_met_by_what_it_trains(tmp_path):
    text = search(asked(tmp_path, "seed=3", "epsilon=2", "score_noise_multiplier=20"))
    (row,) = pd.read_csv(tmp_path / "search" / "some.csv").to_dict("records")
    epsilons = {record.config["privacy"]["epsilon"] for record in records(tmp_path).values()}
    assert len(epsilons) == 1
    assert f"`privacy.epsilon={epsilons.pop()}`" in text
    for record in records(tmp_path).values():
        assert record.privacy["rdp"] == pytest.approx(row["rdp/trial"])
    assert 1.98 < row["epsilon/search"] <= 2


def test_searches_share_no_trial(tmp_path):
    requests = [
        parse(asked(tmp_path, *more))
        for more in (
            [],
            ["trials=5"],
            ["N=2"],
            ["draw=1"],
            ["seed=1"],
            ["law=poisson"],
            ["epsilon=2"],
        )
    ]
    assert len({request.identity for request in requests}) == len(requests)


@pytest.mark.filterwarnings("ignore:.*already executing")
def test_processes_that_begin_a_search_at_once_share_its_key(tmp_path, monkeypatch):
    """Otherwise each would draw trials of its own, and two choices be released for one epsilon."""
    request, both = parse(asked(tmp_path, "noise=secure")), threading.Barrier(2)

    def at_once():
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return secure()

    monkeypatch.setattr("dpbench.search.private.secure", at_once)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: stream_of(request).bits(4).tolist(), range(2))
    assert first == second


def test_secure_noise_draws_trials_from_a_key_for_its_owner_alone(tmp_path):
    request = parse(asked(tmp_path, "noise=secure"))
    first, second = (stream_of(request).bits(4).tolist() for _ in range(2))
    assert first == second  # an interrupted search goes on
    path = key_path(request)
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    assert stream_of(request).bits(4).tolist() != first


@pytest.mark.slow
def test_a_choice_that_is_released_is_not_made_again_with_other_noise(tmp_path):
    words = asked(tmp_path, "noise=secure")
    text = search(words)
    assert search(words) == text  # at no cost
    next((tmp_path / "runs").iterdir()).unlink()
    with pytest.raises(UserError, match=r"has released its choice, .* under another name="):
        search(words)


def test_candidates_are_drawn_uniformly_with_replacement():
    stream, law = CipherStream(bytes(32)), Repetitions("poisson", 8.0)
    searches = [draw_trials(stream, law, 3) for _ in range(500)]
    places = [place for trials in searches for place, _ in trials]
    assert chisquare(np.bincount(places, minlength=3)).pvalue > 1e-3
    assert any(len({place for place, _ in trials}) < len(trials) for trials in searches)
    names = [name for trials in searches for _, name in trials]
    assert len({*names}) == len(names)


@pytest.fixture
def key(tmp_path):
    """A search with a key, and the file of the key."""
    request = parse(asked(tmp_path, "noise=secure"))
    stream_of(request)
    return request, key_path(request)


def test_every_flipped_bit_and_every_cut_of_a_key_is_noticed(key):
    request, path = key
    whole = path.read_bytes()
    flips = (bytes([*whole[:n], whole[n] ^ 1 << bit, *whole[n + 1 :]]) for n in range(len(whole))
             for bit in (0, 5, 7))  # fmt: skip
    cuts = (whole[:end] for end in (0, 1, 7, 63, 66, 100, len(whole) - 2))
    for damaged in (*flips, *cuts, whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="so restore the file; without it the search begins"):
            stream_of(request)


def test_the_key_of_another_search_is_not_this_one_s(key):
    request, path = key
    other = parse(asked(path.parents[1], "noise=secure", "name=other"))
    stream_of(other)
    path.write_bytes(key_path(other).read_bytes())
    with pytest.raises(UserError, match=r"\.key is damaged"):
        stream_of(request)


def test_a_key_that_was_written_without_a_checksum_goes_on_and_gets_one(key):
    request, path = key
    whole = path.read_bytes()
    first = stream_of(request).bits(4).tolist()
    path.write_bytes(whole[:64])
    assert stream_of(request).bits(4).tolist() == first
    assert path.read_bytes() == whole


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_key_that_is_no_file_is_not_opened(make, key):
    request, path = key
    path.unlink()
    make(path)
    with pytest.raises(UserError, match=r"\.key is not a regular file: with another key"):
        stream_of(request)


def test_no_trial_at_all_is_a_result_too(tmp_path, monkeypatch):
    monkeypatch.setattr("dpbench.search.private.draw_trials", lambda *_: [])
    text = search(asked(tmp_path, "law=poisson"))
    assert "The law gave no trial at all, so none is chosen." in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_diverged_trial_is_judged_by_its_noisy_score_alone(tmp_path):
    changed = [o for o in asked(tmp_path, "seed=3") if o != LR] + [
        "optimizer.lr=1e38,1e38",
        "method.bound=1e10",
    ]
    selected = select(parse(changed))
    assert selected.record.status == "diverged"
    assert json.dumps(selected.score) != "NaN"


def test_a_trial_that_cannot_be_run_releases_nothing(tmp_path, monkeypatch):
    def crash(*_):
        raise RuntimeError("out of something")

    monkeypatch.setattr("dpbench.execution.load_or_run.fit", crash)
    with pytest.raises(UserError, match="nothing is released: RuntimeError: out of something"):
        search(asked(tmp_path))
    assert not list((tmp_path / "search").glob("some*"))


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["by=tpe"], "by is not for private=true"),
        (["rule=best_validation"], "rule is not for private=true"),
        (["seed=0,1"], "takes one seed"),
        (
            ["again=true"],
            "again=true .* a second choice has an epsilon of its own: .* another name=",
        ),
        (["again=stale", "noise=secure"], "again=stale is not for private=true"),
        (["privacy.delta=1e-5,1e-6"], "must be the same for all trials"),
        (["privacy=eps8,noise1"], "takes one privacy.delta for all candidates"),
        (["score_noise_multiplier=1,2"], "must be the same for all trials"),
        (["trials=1"], "a mean above 1"),
        (["trials=many"], "trials must be a number"),
        (["shape=-1"], "shape"),
        (["law=uniform"], "law"),
        (["private=maybe"], "private"),
        (["method=sgd"], "a method that adds noise"),
        (["method=fairlens", "dataset=dutch"], "fairlens"),
        (["sampler=shuffled"], "no accountant covers"),
        (["method=dpsgd_jl", "method.failure=5e-7"], "not small against delta="),
        (["validation=null"], "validation split"),
        (["epsilon=2", "privacy=eps8"], "leave out privacy=eps8 .privacy.delta sets delta"),
        (["epsilon=2", "privacy.epsilon=1,2"], "leave out privacy.epsilon=1,2"),
        (["epsilon=0"], "epsilon must be a positive number"),
        (["epsilon=0.1"], "epsilon=0.1 cannot be that of the whole search: .* beside the gradient"),
        (["epsilon=2.5"], "epsilon=2.5 cannot be that .*; raise epsilon or score_noise_multiplier"),
        (["privacy=noise1", "privacy.noise_multiplier=0.1"], "ends where it would have to hide"),
    ],
)
def test_searches_that_cannot_be_private_are_refused_before_any_trial(more, says, tmp_path):
    words = [o for o in asked(tmp_path, *more) if o.split("=")[0] not in keys(more)] + more
    with pytest.raises(UserError, match=says):
        search(words)
    assert not (tmp_path / "runs").exists()


def keys(overrides):
    return {override.split("=")[0] for override in overrides}


@pytest.mark.parametrize("word", ["trials=3", "shape=2", "law=poisson", "epsilon=1"])
def test_law_and_epsilon_are_for_private_searches_alone(word, tmp_path):
    with pytest.raises(UserError, match="is a setting of private=true"):
        search([LR, word, f"results_dir={tmp_path}"])
