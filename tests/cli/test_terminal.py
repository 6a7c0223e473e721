"""What a person at a terminal sees, and a program in a pipe does not."""

import re

import pytest

from dpbench.cli.terminal import laid_out, show


@pytest.fixture
def terminal(monkeypatch):
    for module in ("commands", "terminal"):  # the former imports the latter's function
        monkeypatch.setattr(f"dpbench.cli.{module}.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")


def plain(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


PAGE = "# Toy\n\n| method | accuracy |\n| --- | ---: |\n| DP-SGD | **80.1** |\n"


def test_tables_are_laid_out_on_a_terminal_which_no_text_of_them_controls(terminal, capsys):
    show(PAGE)
    said = capsys.readouterr().out
    assert "\x1b[1m80.1\x1b[0m" in said
    assert re.search(r"DP-SGD +80\.1", plain(said))
    assert "|" not in said
    show("a\x1b]0;title\x07 b")
    assert "\x1b]" not in capsys.readouterr().out


def test_a_pipe_gets_markdown(capsys):
    show(PAGE)
    assert capsys.readouterr().out == PAGE


def test_a_card_shows_an_epsilon_or_says_why_there_is_none(terminal, command, nowhere):
    said = plain("\n".join(command("epsilon", "privacy=eps3", *nowhere).out))
    assert "DP-SGD on digits, mlp" in said
    assert re.search(r"3\.00 +PLD \(upper bound\)", said)
    assert "proven: Poisson-sampled Gaussian mechanism" in said
    assert "delta 1e-05, per example, add-or-remove adjacency, Poisson batches" in said
    assert re.search(r"telling whether an example was trained on +26\.6%", said)
    assert "probability of naming the right one of 10,000 values" in said
    assert "{" not in said
    said = plain("\n".join(command("epsilon", "dataset=dutch", "method=fairlens", *nowhere).out))
    assert said.count("no proof") == 3
    assert "achieves at most" not in said


def test_a_wide_table_is_folded_into_the_width():
    head = " | ".join(f"column {i}" for i in range(9))
    lines = laid_out(f"| {head} |\n|{'---|' * 9}\n| {head} |\n", 60).splitlines()
    assert max(map(len, map(plain, lines))) <= 60
