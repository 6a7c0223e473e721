"""A table takes the settings of its rows from the files of the searches that it names."""

import pytest

from dpbench.comparison.compare.side import AT_EDGE, ELSEWHERE
from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config import compose as composing
from dpbench.runs.config import table_rules
from dpbench.runs.config.compose import compose
from dpbench.system.errors import UserError

LINES = """\
trial,method.bound,method.bands,optimizer.lr,n,validation/accuracy
3,{bound},16,1e-03,5,0.9
1,0.1,1,0.02,1,0.8
2,10,4,1e-05,1,0.7
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Writes a search that chose a bound."""
    monkeypatch.setattr(table_rules, "searches_folder", lambda: tmp_path)
    cached = table_rules._lines, composing._composed, composing._base
    for known in cached:
        known.cache_clear()
    yield lambda name, bound: (tmp_path / f"{name}.csv").write_text(LINES.format(bound=bound))
    for known in cached:
        known.cache_clear()


def test_the_first_line_is_the_choice_and_numbers_are_numbers(made):
    made("mine", 2.5)
    assert table_rules.settings_of_search("mine") == {
        "method": {"bound": 2.5, "bands": 16},
        "optimizer": {"lr": 0.001},
    }
    assert table_rules.settings_of_search("none") is None


@pytest.mark.parametrize(("bound", "edge"), [(0.13, True), (0.2, False), (6, False), (8, True)])
def test_a_choice_in_the_outer_tenth_of_a_log_range_is_at_its_edge(made, bound, edge):
    """The chosen bands are the most that were tried, and are no edge."""
    made("mine", bound)
    assert table_rules.chose_an_edge("mine") is edge


def test_a_run_of_a_table_has_what_its_row_s_search_chose(made):
    made("frontier_table1-adult-dp_mf", 2.5)
    run = ["+table=frontier_table1", "table.arm=dp_mf", "dataset=adult"]
    assert compose([*run, "seed=3"])["method"]["bound"] == 2.5
    assert compose([*run, "seed=3", "method.bound=7"])["method"]["bound"] == 7


SEVERAL = [
    *("+table.searches=2", 'table.tuned="s-{arm}-{search}"', "table.claims={}"),
    *("table.methods=[bam,dpsgd]", "table.seeds=[4,5,6,7]", "table.conditions=[{dataset:[adult]}]"),
]


def test_a_run_takes_the_choice_of_the_search_that_its_seed_stands_for(made, tmp_path):
    def choose(name, bound):
        lines = [f"1,{bound},5", "2,0.1,1", "3,10,1"]
        (tmp_path / f"s-{name}.csv").write_text("\n".join(["trial,method.bound,n", *lines]))

    for name, bound in {"bam-1": 0.3, "bam-2": 3.0, "dpsgd-1": 0.3, "dpsgd-2": 5.0}.items():
        choose(name, bound)
    target = target_of("frontier_table1", SEVERAL)
    assert target.searches["adult", "bam"] == ["s-bam-1", "s-bam-2"]
    assert target.tuning["adult, bam"].flaw == ""
    runs = [compose(overrides) for overrides in target.cells()]
    found = [(target.method_of(r), r["seed"], r["method"]["bound"]) for r in runs]
    assert found == [
        *(("bam", seed, 3.0 if seed % 2 else 0.3) for seed in (4, 5, 6, 7)),
        *(("dpsgd", seed, 5.0 if seed % 2 else 0.3) for seed in (4, 5, 6, 7)),
    ]
    assert compose([*next(target.cells()), "method.bound=9"])["method"]["bound"] == 9

    choose("bam-2", 9.9)  # at the edge
    table_rules._lines.cache_clear()
    assert target_of("frontier_table1", SEVERAL).tuning["adult, bam"].flaw == AT_EDGE


def test_a_table_without_its_search_is_refused_and_a_search_of_it_is_not(made):
    with pytest.raises(UserError, match="of dutch, epsilon 1, sgd from the search frontier_table1"):
        target_of("frontier_table1", [])
    compose(["+table=frontier_table1", "table.arm=dp_mf", "dataset=adult", "seed=4"])


def test_a_rule_takes_what_a_search_chose(made, tmp_path):
    (tmp_path / "sign_table1-adult-mlp-dpsgd.csv").write_text("trial,method.bound,n\n1,2.5,1\n")
    run = ["+table=sign_table1", "dataset=adult"]
    assert compose([*run, "method=dpsgd", "seed=3"])["method"]["bound"] == 2.5
    with pytest.raises(
        UserError, match="dpsgd_coordinate from the search sign_table1-adult-mlp-dp"
    ):
        target_of("sign_table1", ["dataset=adult", "table.methods=[dpsgd,dpsgd_coordinate]"])


def test_rows_at_an_edge_or_tuned_under_another_condition_are_named():
    assert target_of("frontier_table1", []).tuning["dutch, epsilon 3, dpsgd"].flaw == AT_EDGE
    tuning = target_of("frontier_table1", ["table.methods=[sgd,bam]"]).tuning
    found = {row: one.flaw for row, one in tuning.items()}
    assert {row for row, why in found.items() if why == ELSEWHERE} >= {
        f"dutch, epsilon {epsilon}, bam" for epsilon in (1, 8)
    }
    assert found.get("dutch, epsilon 3, bam") != ELSEWHERE
    assert found.get("dutch, epsilon 1, sgd") != ELSEWHERE, "it has no epsilon"
    made_up = "table.tuned_at={rate:1}"
    with pytest.raises(UserError, match=r"table.tuned_at: its runs have no setting 'rate'"):
        _ = target_of("frontier_table1", ["table.methods=[dpsgd]", made_up]).tuning
