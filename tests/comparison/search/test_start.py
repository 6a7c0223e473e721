"""A search starts at the special case that its method contains, which really is one."""

import functools
from dataclasses import replace

import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from dpbench.comparison.search.command import beyond, run_trials, search
from dpbench.comparison.search.report import at_edge, render
from dpbench.comparison.search.request import parse, repeated
from dpbench.runs.config import table_rules
from dpbench.runs.config.buildable import settings_of
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import split_ranges
from dpbench.runs.config.search_path import options, searching
from dpbench.runs.config.space import Choices, override_texts, ranges_of
from dpbench.runs.config.special_case import has_special_case, special_case
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import UserError
from dpbench.system.paths import conf_folder
from dpbench.system.validate import spelled_number
from tests.comparison.search.test_extension import trial
from tests.runs.training.small_runs import NOWHERE

EQUAL, ROUNDED, ALMOST = 0.0, 1e-5, 1e-2
"""The relative differences of trained parameters: none; that of another order of float32 products;
and that of an adaptation too slow to matter, or of 0.5% more noise for its query."""

DIFFERENCES = {
    **dict.fromkeys(["bam", "bam_exact", "dpsat", "disk", "doppler", "dp_mf", "dp_muon"], EQUAL),
    **dict.fromkeys(["direction_error", "magnitude_error"], EQUAL),
    **dict.fromkeys(["slaclip", "fairlens", "dp_fedavg", "geoclip"], ROUNDED),
    **dict.fromkeys(
        ["dicesgd", "dpsgd_quantile", "dpsgd_bounded", "raco", "dc_sgd", "asc"], ALMOST
    ),
}
USERS = ["users=iid", "batch_size=60", "privacy=noise1"]
CHOSEN = {"method.bound": "0.7", "optimizer.lr": "2"}
CONTAINING = [method for method in options("method") if special_case(method)]


@functools.cache
def trained(*overrides):
    """The parameters of a run, and its noise multiplier; the same draws for the same seed."""
    small = ["model=logistic", "epochs=2", "threads=1", "device=cpu"]
    run, kept = run_of(run_config([*small, *overrides])), []
    run = replace(run, config={})  # whose digest would give every method draws of its own
    record = fit(run, NOWHERE, quiet=True, save=lambda model, *_: kept.extend(model.parameters()))
    return torch.cat([one.detach().flatten() for one in kept]), record.privacy["noise_multiplier"]


@pytest.fixture(scope="module")
def two_groups(tmp_path_factory):
    """Digits below and from five, as a file: fairlens takes two groups."""
    digits, path = load_digits(as_frame=True).frame, tmp_path_factory.mktemp("two") / "digits.csv"
    digits = digits.loc[:, digits.std() > 1]  # the others have another scale
    digits["target"] = (digits["target"] < 5).map({True: "low", False: "high"})
    digits.to_csv(path, index=False)
    return [
        *("dataset=csv", f"dataset.file='{path}'", "dataset.target=target"),
        *("dataset.group=target", "dataset.standardise=none"),
    ]


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("method", CONTAINING)
def test_a_method_at_its_start_is_its_special_case(method, two_groups):
    case = special_case(method)
    data = two_groups if method == "fairlens" else ["dataset=digits"]
    data = [*data, *(USERS if "fed" in method else ["batch_size=256", "privacy=eps3"])]
    known = [key for key in CHOSEN if key != "method.bound" or case.special_case != "sgd"]
    chosen = {key: CHOSEN[key] for key in known}
    ours = {**chosen, **case.own(chosen)}
    theta, noise = trained(*data, f"method={method}", *(f"{k}={v}" for k, v in ours.items()))
    settings = (f"{k}={v}" for k, v in chosen.items())
    usual, least = trained(*data, f"method={case.special_case}", *settings)
    assert (theta - usual).norm() <= DIFFERENCES[method] * usual.norm()
    assert noise == least or least < noise < 1.01 * least


def test_every_start_has_a_stated_difference_and_dense_extension():
    assert {*CONTAINING} == DIFFERENCES.keys()
    plain = ["dataset=digits", "optimizer.lr=tag(log,interval(1e-3,1))"]
    extends = [parse([*plain, *more]).extend for more in ([], ["N=64"], ["N=1"], ["extend=0"])]
    assert extends == [5, 16, 1, 0]


@pytest.mark.parametrize("method", CONTAINING)
def test_what_is_searched_ranges_to_the_special_case(method):
    """A log range cannot reach 0, which only the start tries."""
    case = special_case(method)
    ranges = {r.key: r for r in split_ranges([f"{k}={v}" for k, v in ranges_of(method).items()])[0]}
    settings = {f"method.{key}" for key in settings_of(compose([f"method={method}"])["method"])}
    assert {*case.constants, *case.products} <= settings | {"optimizer.lr"}
    for key in case.constants.keys() & ranges.keys():
        range_, text = ranges[key], case.texts[key]
        if isinstance(range_, Choices):
            assert text in range_.values
        else:
            value = float(text)
            assert range_.low <= value <= range_.high or (range_.log and value == 0), key


def request_for(method, folder, *arguments):
    own = ["space=method", f"method={method}", "dataset=digits", f"results_dir={folder}"]
    return parse([*own, *arguments])


@pytest.fixture
def made(tmp_path):
    """Writes a search that chose a bound of 0.7 and a rate of 3."""

    def write(name, folder=tmp_path / "search", failed=""):
        folder.mkdir(exist_ok=True)
        head = "trial,method.bound,optimizer.lr,n,validation/accuracy,failed"
        lines = [head, f"5,0.7,3,1,0.9,{failed}", "1,0.1,0.02,1,0.8,"]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")

    return write


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("dp_mf", {"method.bands": "1", "method.bound": "0.7", "optimizer.lr": "3"}),
        ("bam", {"method.lambda_": "0", "method.bound": "0.7", "optimizer.lr": "3"}),
        ("slaclip", {"method.least": "0.7", "method.most": "0.7", "method.slots": "8"}),
        ("dpsgd_bounded", {"method.lower_bound": "0.7", "method.bound": "0.7"}),
        ("doppler", {"method.a": "[]", "method.b": "[1.0]", "optimizer.lr": "3"}),
    ],
)
def test_the_start_has_what_the_search_of_the_special_case_chose(method, values, made, tmp_path):
    made("mine-eps1-dpsgd-again")
    request = request_for(method, tmp_path, f"name=mine-eps1-{method}-again")
    assert request.start.search == "mine-eps1-dpsgd-again"
    assert values.items() <= request.start.values.items()
    assert request.start.values.keys() == {range_.key for range_ in request.space.ranges}


def test_a_rate_of_sums_in_units_of_the_bound_is_a_product(made, tmp_path):
    made("dpsgd")
    values = request_for("dpsgd_bounded", tmp_path, "name=dpsgd_bounded").start.values
    assert float(values["optimizer.lr"]) == pytest.approx(0.7 * 3)


def test_a_row_of_a_table_starts_from_the_row_of_its_special_case(made, tmp_path):
    made("mine-dpsgd")
    row = ["space=method", "+table=frontier_table3", "table.arm=raco_odds", "dataset=dutch"]
    request = parse([*row, "name=mine-raco_odds", f"results_dir={tmp_path}"])
    assert request.start.search == "mine-dpsgd"


def test_a_committed_search_is_found_and_one_in_the_folder_comes_first(made, tmp_path, monkeypatch):
    committed = tmp_path / "committed"
    monkeypatch.setattr(table_rules, "searches_folder", lambda: committed)
    made("x-dpsgd", committed)
    assert request_for("dp_mf", tmp_path, "name=x-dp_mf").start.search == "x-dpsgd"
    made("x-dpsgd")
    (committed / "x-dpsgd.csv").write_text("broken\n1\n")
    assert request_for("dp_mf", tmp_path, "name=x-dp_mf").start.values["optimizer.lr"] == "3"
    (tmp_path / "search" / "x-dpsgd.csv").unlink()
    with pytest.raises(UserError, match="is not the file of a search"):
        request_for("dp_mf", tmp_path, "name=x-dp_mf")


@pytest.mark.parametrize("name", ["mine-dp_mf", ""])
def test_without_a_search_of_the_special_case_the_start_has_defaults(name, made, tmp_path):
    made("mine-dpsgd", failed="seed 0: diverged")
    start = request_for("dp_mf", tmp_path, *([f"name={name}"] if name else [])).start
    assert (start.search, start.values["method.bands"]) == ("", "1")
    assert start.values["optimizer.lr"] == str(compose(["method=dp_mf"])["optimizer"]["lr"])
    assert "default settings: dpsgd was not searched" in start.description


def test_the_search_of_the_special_case_may_be_named(made, tmp_path):
    made("other")
    asked = ["start=other", "name=mine"]
    assert request_for("dp_mf", tmp_path, *asked).start.search == "other"


@pytest.mark.parametrize(
    "arguments",
    [["method=dpsgd"], ["method=dp_mf", "start=none"], ["method=dp_mf", "method.bands=2,4"]],
)
def test_there_is_no_start_without_a_special_case(arguments):
    request = parse(["space=method", "dataset=digits", *arguments])
    assert request.start is None
    assert "start" not in render(request, [trial(1, **{"optimizer__lr": "1"})])["csv"].decode()


def test_a_private_search_starts_nowhere():
    """What another search chose depends on the data, and no epsilon would cover it."""
    asked = ["space=method", "method=bam", "dataset=digits", "private=true", "epsilon=3"]
    assert parse(asked).start is None
    with pytest.raises(UserError, match="start is not for private=true"):
        parse([*asked, "start=other"])


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        ("start: dpsgd", "start of .* must be"),
        ("start: {special_case: dpsgdd}", "special_case=dpsgdd is unknown: did you mean dpsgd"),
        ("start: {special: dpsgd}", "there is no 'special' in start"),
        ("start: {constants: {method.bound: 1}}", "'special_case' is missing"),
        ("start: {special_case: sgd, constants: {method.bond: 1}}", "start sets method.bond"),
        ("start: {special_case: sgd, products: {optimizer.lr: [lr]}}", "a product of lr, which"),
    ],
)
def test_a_broken_start_is_refused(start, sentence, tmp_path):
    (tmp_path / "method").mkdir()
    space = f"search:\n  optimizer.lr: 0.1,0.2\n  {start}\n"
    (tmp_path / "method" / "mine.yaml").write_text(f"bound: 1.0\n{space}")
    with searching([tmp_path]), pytest.raises(UserError, match=sentence):
        parse(["space=mine", "method=dpsgd", "dataset=digits"])


@pytest.fixture
def scored(monkeypatch):
    """Trials without runs, which are the better the closer a rate is to 0.5."""

    def run_batch(request, values, previous, outcomes):
        for number, value in enumerate(values, previous + 1):
            worth = 1 / (1 + abs(float(value["optimizer.lr"]) - 0.5))
            yield replace(trial(number, worth), values=value)

    monkeypatch.setattr("dpbench.search.command._run_batch", run_batch)


@pytest.mark.parametrize("method", ["dp_mf", "doppler"])
def test_the_trials_after_the_start_are_those_without_it(method, scored, made, tmp_path):
    made("x-dpsgd")
    asked = ["N=6", "extend=2", f"name=x-{method}"]
    first, *others = run_trials(request_for(method, tmp_path, *asked))
    usual = run_trials(request_for(method, tmp_path, *asked, "start=none"))
    assert (first.number, first.values["optimizer.lr"]) == (0, "3")
    assert [one.number for one in others] == [one.number for one in usual]
    kept = usual[0].values.keys()
    assert [{key: one.values[key] for key in kept} for one in others] == [u.values for u in usual]


def test_page_and_file_say_which_trial_was_the_start(scored, made, tmp_path):
    made("x-dpsgd")
    request = request_for("dp_mf", tmp_path, "N=8", "extend=0", "name=x-dp_mf")
    files = {k: v.decode() for k, v in render(request, run_trials(request)).items()}
    assert (
        "Trial 0 is the start: with `method.bands=1` the method is dpsgd, here at the setting that "
        "the search `x-dpsgd` chose." in files["md"]
    )
    usual = replace(request, start=None)
    pages = files["md"], render(usual, run_trials(usual))["md"].decode()
    found, expected = (p.partition("## Fewer trials")[2].split("The privacy")[0] for p in pages)
    assert found == expected != "", "of random trials alone"
    path = tmp_path / "x.csv"
    path.write_text(files["csv"])
    lines = pd.read_csv(path, dtype=str).set_index("trial")["start"].dropna()
    assert lines.to_dict() == {"0": "dpsgd method.bands=1"}


@pytest.mark.slow
def test_a_search_runs_its_start_first_and_repeats_nothing(made, tmp_path):
    made("x-dpsgd")
    asked = ["space=method", "method=dp_mf", "dataset=digits", "model=logistic", "epochs=1"]
    asked += ["N=1", "extend=0", "finalists=1", "final_seeds=1", "name=x-dp_mf", "threads=1"]
    text = search([*asked, f"results_dir={tmp_path}"])
    assert "| 0 | 1 | 0.7 | 3 | " in text
    before = {path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert search([*asked, f"results_dir={tmp_path}"]) == text
    assert {path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == before


def test_each_of_several_searches_starts_at_the_choice_of_its_number(made, tmp_path):
    for number in (1, 2):
        made(f"other-{number}")
    asked = ["space=method", "method=dp_mf", "dataset=digits", "name=x", f"results_dir={tmp_path}"]
    requests = repeated([*asked, "repeat=2", "start=other"])
    assert [request.start.search for request in requests] == ["other-1", "other-2"]


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """Writes the lines of a committed search, the chosen one first."""
    monkeypatch.setattr(table_rules, "searches_folder", lambda: tmp_path)
    table_rules._lines.cache_clear()

    def write(columns, *rows):
        head = f"trial,{columns},n,start"
        lines = [f"{number},{row}" for number, row in enumerate(rows)]
        (tmp_path / "mine.csv").write_text("\n".join([head, *lines]) + "\n")

    yield write
    table_rules._lines.cache_clear()


@pytest.mark.parametrize(
    ("method", "columns", "row", "has"),
    [
        ("dp_mf", "method.bands", "1,1,", True),
        ("dp_mf", "method.bands", "4,1,", False),
        ("dp_mf", "method.bound", "1,1,", False),
        ("dicesgd", "method.error_bound,method.account_share", "0.000001,0.01,1,", True),
        ("dicesgd", "method.error_bound,method.account_share", "0.000001,0.5,1,", False),
        ("slaclip", "method.bound", "1,1,", False),
        ("slaclip", "method.bound", "1,1,dpsgd method.least=1", True),
        ("dpsgd", "method.bound", "1,1,", False),
    ],
)
def test_trials_are_asked_for_the_special_case(method, columns, row, has, committed):
    committed(columns, row)
    assert has_special_case("mine", method) is has
    assert has_special_case("none", method) is False


@pytest.mark.parametrize(
    ("chosen", "edge"),
    [("0", False), ("0.001", False), ("0.0011", False), ("0.05", False), ("0.29", True)],
)
def test_the_side_of_the_special_case_is_no_edge(chosen, edge, committed):
    """A lambda near 0 lies between two that were tried."""
    others = ["0.3,1,", "0.001,1,", "0,1,dpsgd method.lambda_=0"]
    committed("method.lambda_", f"{chosen},1,", *others)
    assert table_rules.chose_an_edge("mine") is edge
    tried = [trial(n, method__lambda_=text.split(",")[0]) for n, text in enumerate(others)]
    ranges, _ = split_ranges(["method.lambda_=tag(log,interval(1e-3,0.3))"])
    said = at_edge(trial(9, method__lambda_=chosen), tried, ranges, {"method.lambda_": 0.0})
    assert bool(said) is edge


@pytest.mark.parametrize(("bands", "edge"), [("1", False), ("2", False), ("16", True)])
def test_no_value_below_the_special_case_is_asked_for(bands, edge):
    tried = [trial(n, method__bands=text) for n, text in enumerate(["1", "2", "4", "16"])]
    said = at_edge(trial(9, method__bands=bands), tried, (), {"method.bands": 1.0})
    assert bool(said) is edge


def test_a_search_does_not_go_on_beyond_its_special_case(made, tmp_path):
    request = request_for("dpsgd_quantile", tmp_path, "N=2")
    low = {**request.start.values, "method.clip_learning_rate": "0.00011"}
    high = {key: str(2 * spelled_number(text)) for key, text in low.items()}
    small = {key: str(spelled_number(text) / 2) for key, text in low.items()}
    trials = [
        replace(trial(1, 0.9), values=low),
        replace(trial(2), values={**high, "method.clip_learning_rate": "0.9"}),
        replace(trial(3), values={**small, "method.clip_learning_rate": "0.5"}),
    ]
    assert beyond(request, request.space, trials) is None
    assert beyond(replace(request, start=None), request.space, trials) is not None


@pytest.mark.parametrize("method", CONTAINING)
def test_the_overview_names_the_special_case_and_its_settings(method):
    text = (conf_folder().parent / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    table = text.partition("## Special cases")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    (row,) = [row for row in rows if f"`{method}`" in row.split("|")[1]]
    case = special_case(method)
    assert f"| `{case.special_case}` |" in row
    assert all(f"`{override}`" in row for override in override_texts(case.texts))
    assert all(f"`{key}`" in row for key in case.products)
