"""What a command says to its user."""

import warnings

from dpbench.system.errors import counted, show_warnings_as_messages


def test_one_is_not_several():
    assert counted(1, "row") == "1 row"
    assert counted(0, "row") == "0 rows"
    assert counted(1, "class", "classes") == "1 class"
    assert counted(2, "class", "classes") == "2 classes"


def test_a_warning_that_all_runs_share_is_told_once(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for _ in range(2):  # commands
            show_warnings_as_messages()
            for _ in range(3):
                warnings.warn("a town is misspelt.", stacklevel=1)
    assert capsys.readouterr().err == 2 * "dpbench: a town is misspelt.\n"
