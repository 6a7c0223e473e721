from dataclasses import replace

import pytest
import torch

from dpbench.learning.data.derive.unbalanced import Unbalanced
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Data
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.training.plan import plan
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator

DIGITS = Digits(test_share=0.2)


def rows(*splits):
    """All examples as sorted rows of pixels and label."""
    both = [torch.cat([s.inputs.flatten(1), s.targets[:, None].float()], 1) for s in splits]
    return sorted(map(tuple, torch.cat(both).tolist()))


@pytest.mark.parametrize("base", [DIGITS, Unbalanced(DIGITS, label=8, keep=0.2)])
def test_the_training_set_is_divided_and_the_test_set_is_left_out(base, tmp_path):
    whole, divided = base.load(tmp_path, seed=3), WithValidation(base, 0.25).load(tmp_path, seed=3)
    assert rows(divided.train, divided.test) == rows(whole.train)
    assert len(divided.test) == int(0.25 * len(whole.train))
    assert divided.tested_on == "validation"
    assert whole.tested_on == "test"


def test_the_public_size_is_that_of_what_is_left(tmp_path):
    divided = WithValidation(DIGITS, 0.25)
    assert divided.train_size == len(divided.load(tmp_path, seed=0).train) == 1438 - 359
    assert WithValidation(Unbalanced(DIGITS, label=8, keep=0.2), 0.5).train_size == 663


def test_the_seed_draws_the_split_and_not_as_it_draws_the_test_set(tmp_path):
    divided = WithValidation(DIGITS, 0.2)
    first, again, other = (divided.load(tmp_path, seed).test.inputs for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    whole = DIGITS.load(tmp_path, 0).train
    as_the_test_set = numpy_generator(0, "split").permutation(len(whole))[: len(first)]
    assert not torch.equal(first, whole.inputs[as_the_test_set])


def test_all_else_is_the_data_set_s_own():
    divided = WithValidation(DIGITS, 0.2)
    for name in ("name", "shape", "classes", "groups"):
        assert getattr(divided, name) == getattr(DIGITS, name)
    assert divided.notes[: len(DIGITS.notes)] == DIGITS.notes
    assert "outside every epsilon" in divided.notes[-1]


def test_without_a_share_nothing_is_held_out_and_too_small_a_one_is_refused():
    assert build(compose([])).dataset == DIGITS
    with pytest.raises(UserError, match="holds out none of the 1438 training examples"):
        WithValidation(DIGITS, 0.0001)


@pytest.mark.parametrize("share", [0, 1, -0.1, "half", True])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(UserError, match="validation must be a number between 0 and 1"):
        WithValidation(DIGITS, share)


@pytest.mark.slow
def test_sampling_rate_steps_and_epsilon_follow_from_the_smaller_training_set():
    plans = [
        plan(build(compose(overrides)))
        for overrides in (["batch_size=100"], ["batch_size=100", "validation=0.5"])
    ]
    whole, half = (planned.step.sampling.rate for planned in plans)
    # ceil(1438 / 100) and ceil(719 / 100) batches to the epoch.
    assert (whole, half) == (1 / 15, 1 / 8)
    assert [planned.steps for planned in plans] == [20 * 15, 20 * 8]


@pytest.mark.slow
def test_a_run_is_that_on_a_data_set_whose_test_set_is_the_validation_split(tmp_path):
    """A twin that has never heard of validation gives the same numbers under the other name."""
    run = build(compose(["validation=0.2", "epochs=1", "model=logistic", "seed=2"]))
    parts = run.dataset.load(tmp_path, 2)

    class Twin(Digits):
        train_size = len(parts.train)

        def load(self, folder, seed):
            return Data(parts.train, parts.test)

    record = fit(run, tmp_path)
    twin = fit(replace(run, dataset=Twin(0.2)), tmp_path)
    assert record.metrics == {n.replace("test/", "validation/"): v for n, v in twin.metrics.items()}
    assert record.privacy | {"notes": []} == twin.privacy | {"notes": []}
    assert not any(name.startswith("test/") for name in record.metrics)
    assert record.config["validation"] == 0.2
