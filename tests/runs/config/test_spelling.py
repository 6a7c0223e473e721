"""A misspelt key is refused with the nearest name."""

from dpbench.runs.config.spelling import check_spelling


def test_what_a_parser_or_a_part_refuses_is_left_to_it():
    kept = "-m --cfg job ~method +table=demo table.arm=x +experiment=a,b hydra/launcher=x a @b=c"
    check_spelling("run", [*kept.split(), "seed=0,1", "method.x=1", "record=x"], ["record"])
