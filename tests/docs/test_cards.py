"""A card for every method, which says what its YAML and its code say."""

import re
import runpy
from pathlib import Path

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.prepare import build
from dpbench.system.errors import UserError

CARDS = Path(__file__).parents[2] / "docs" / "methods"
NAMES = options("method")
GENERATED = runpy.run_path(str(CARDS.parents[1] / "scripts" / "cards"))["generated"]


def card(name: str) -> str:
    return (CARDS / f"{name}.md").read_text()


def settings_of(name: str) -> dict:
    return {k: v for k, v in compose([f"method={name}"])["method"].items() if k != "_target_"}


@pytest.mark.parametrize("clip", ["batch", "none"])
def test_the_overview_names_the_methods_that_refuse_a_clip_without_proof(clip):
    said = re.search(r"no epsilon is shown\. (.*?)\srefuse both", card("README"), re.DOTALL)
    refused = set()
    for name in NAMES:
        if "clip" in settings_of(name):
            try:
                build(compose([f"method={name}", f"method.clip={clip}", "method.style=flat"]))
            except UserError:
                refused.add(name)
    assert refused == {*re.findall(r"`(\w+)`", said[1])}


@pytest.mark.parametrize("name", NAMES)
def test_a_method_for_users_names_every_way_to_have_them(name):
    head = (CARDS.parents[1] / "conf" / "method" / f"{name}.yaml").read_text().partition("_target_")
    if "users=" in head[0]:
        for users in options("users"):
            assert users == "none" or users in head[0]


def test_every_method_has_a_card_and_every_card_a_method():
    assert {path.stem for path in CARDS.glob("*.md")} == {*NAMES, "README"}


@pytest.mark.parametrize("name", NAMES)
def test_a_card_names_the_settings_of_its_method_the_parts_of_a_step_and_the_source(name):
    rows = [line for line in card(name).splitlines() if line.startswith("| `method.")]
    assert [row.split("`")[1] for row in rows] == [f"method.{key}" for key in settings_of(name)]
    lines = card(name).splitlines()
    assert lines[0] == f"# {name}"
    parts = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    assert parts[:5] == ["part", "gradient", "clip", "noise", "update"]
    heads = [line for line in lines if line.startswith("## ")]
    assert heads == ["## Settings", "## Guarantee", "## Cost", "## Source"]


@pytest.mark.parametrize("name", NAMES)
def test_generated_parts_of_a_card_are_current(name):
    text = card(name)
    assert GENERATED(name, text) == text, "run scripts/cards"
    kinds = ["defaults", *["guarantee"] * (2 if "variant" in settings_of(name) else 1)]
    assert re.findall(r"<!-- (defaults|guarantee)", text) == kinds


@pytest.mark.parametrize("name", NAMES)
def test_a_card_gives_the_guarantee_of_the_code_and_its_reason(name):
    text = re.sub(r"<!-- .*? -->", "", card(name))
    said = " ".join(text.partition("## Guarantee")[2].partition("## Cost")[0].split())
    variants = ["corrected", "paper"] if "variant" in settings_of(name) else [None]
    for variant in variants:
        chosen, head = [], ""
        if variant:
            chosen, head = [f"method.variant={variant}"], f"With `method.variant={variant}`: "
        guarantee = build(compose([f"method={name}", *chosen])).method.guarantee
        assert f"{head}**{guarantee.level}**. {guarantee.why}" in said
    assert said.count("**") == 2 * len(variants)


@pytest.mark.parametrize("name", NAMES)
def test_the_overview_has_the_guarantee_of_the_default(name):
    (row,) = (
        line
        for line in (CARDS / "README.md").read_text().splitlines()
        if line.startswith(f"| [{name}]({name}.md) |")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4] == build(compose([f"method={name}"])).method.guarantee.level
