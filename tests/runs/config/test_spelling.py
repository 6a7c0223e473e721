"""A misspelt key is refused with the nearest name."""

import pytest

from dpbench.cli.registry import COMMANDS
from dpbench.runs.config.spelling import check_spelling
from dpbench.system.errors import UserError


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("audit canary=10", "canary is not a setting: did you mean canaries?"),
        ("search finalist=3", "finalist is not a setting: did you mean finalists or"),
        ("epsilon eps=3", "eps is not a setting: did you mean privacy.epsilon or epochs?"),
        ("run meth.style=flat", "meth.style is not a setting: did you mean method"),
        ("run method=dpsgd_f +count=2", "or method.count_noise_ratio?"),
        (
            "search --jobs 2",
            "--jobs is not a flag of search (settings are KEY=VALUE): write jobs=2",
        ),
        (
            "run seed=1 --jobs=2",
            "--jobs=2 is not a flag of run (settings are KEY=VALUE): write j",
        ),
        ("reproduce demo --seed", "settings are KEY=VALUE): write seed=VALUE."),
    ],
)
def test_the_nearest_name_is_told(words, sentence):
    command, *arguments = words.split()
    with pytest.raises(UserError) as refused:
        check_spelling(command, arguments, COMMANDS[command].keys)
    assert sentence in str(refused.value)


def test_what_a_parser_or_a_part_refuses_is_left_to_it():
    kept = "-m --cfg job ~method +table=demo table.arm=x +experiment=a,b hydra/launcher=x a @b=c"
    check_spelling("run", [*kept.split(), "seed=0,1", "method.x=1", "record=x"], ["record"])
