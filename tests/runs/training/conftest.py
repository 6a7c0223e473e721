"""What all tests of training share."""

import pytest
from absl import logging as absl_logging

from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.figures import reliability
from dpbench.runs.records.reading import load
from dpbench.step.gradients import choice
from tests.runs.training.notes import BY_EPOCH, SMALL


@pytest.fixture(autouse=True, scope="module")
def few_words():
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    yield
    absl_logging.set_verbosity(before)


@pytest.fixture(scope="module")
def engines_checked_once():
    """An engine is compared with the reference for the first of equal models: to do so takes a
    third of the time of a small run, and is tested in tests/step/gradients."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("refuse_coupling", "disagreement"):
            patch.setattr(choice, name, once(getattr(choice, name)))
        yield


def once(check):
    """The check of an engine, which is not repeated where it found nothing."""
    passed = set()

    def checked(engine, *others):
        key = (type(engine), str(engine.model), str(engine.loss), others[-1].inputs.shape)
        found = None if key in passed else check(engine, *others)
        if found is None:
            passed.add(key)
        return found

    return checked


@pytest.fixture(scope="module")
def one_picture():
    """To draw takes as long as these runs."""
    draw, drawn = reliability.reliability_picture, []

    def picture(*about):
        drawn.append(drawn[0] if drawn else draw(*about))
        return drawn[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reliability, "reliability_picture", picture)
        yield


@pytest.fixture
def tell(monkeypatch, tmp_path):
    """tell(tracker, *overrides): the record of a run that the tracker hears of."""

    def make(tracker, *overrides):
        monkeypatch.setattr(RunConfig, "trackers", {"notes": tracker})
        small = [*SMALL, BY_EPOCH, f"results_dir={tmp_path}"]
        return load(load_or_run(run_config([*small, *overrides])))

    return make
