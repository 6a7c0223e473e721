"""A method looks the same everywhere, and no two look the same."""

import re
from importlib.resources import files

import pytest

from dpbench.comparison.tables.figures.looks import COLOURS, MARKS, ORDER, looks, on_paper
from dpbench.runs.config.search_path import options


def test_a_method_that_no_list_names_has_a_look_of_its_own_as_all_have():
    assert len({*looks(options("method")).values()}) == len(options("method"))
    strangers = [f"mine{number}" for number in range(len(COLOURS) * len(MARKS))]
    assert len({*looks(strangers).values()}) == len(strangers)
    # Adding a method takes no edit of the list.
    for number in range(100):
        new = f"mine{number}"
        assert looks([new, *ORDER])[new] == looks([new])[new]


@pytest.mark.parametrize("others", [["sgd"], ["mine", "yours"], ORDER])
def test_the_look_of_a_method_depends_on_no_other(others):
    for method in ("dpsgd", "bam", "dpzero", "a plug-in's"):
        assert looks([method, *others])[method] == looks([method])[method]


def test_the_page_has_the_colours_and_the_markers_of_paper():
    assets = files("dpbench.dashboard") / "assets"
    style, html = ((assets / name).read_text() for name in ("style.css", "page.html"))
    light = dict(re.findall(r"--c(\d): (#\w+)", style.partition("}")[0]))
    assert tuple(light[str(number)] for number in range(len(COLOURS))) == COLOURS
    assert {*re.findall(r'id="mark-([\w-]+)"', html)} == {*MARKS}
    assert on_paper(["dpsgd"]) == {"dpsgd": {"color": "#0072b2", "marker": "o"}}
