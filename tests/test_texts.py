"""The trainer on texts: token numbers all the way, by a small BERT."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.models.bert import Bert
from dpbench.learning.models.mlp import Mlp
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.plan import plan
from dpbench.runs.training.run import Run
from dpbench.runs.training.trainer import fit
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError

NOWHERE = Path("/nowhere")


@dataclass(frozen=True)
class FirstWord:
    """Texts of nine tokens below 20, the last ones padding; the class is that of the first."""

    name = "first_word"
    task = "classification"
    shape = (2, 9)
    classes = 2
    groups = ("all",)
    train_size = 300
    notes = ()
    vocabulary = 20

    def load(self, folder, seed):
        draw = torch.Generator().manual_seed(seed)
        return Data(self.split(300, draw), self.split(100, draw))

    def split(self, n, draw):
        tokens = torch.randint(1, 20, (n, 9), generator=draw)
        tokens[:, 6:] = 0
        inputs = torch.stack([tokens, torch.zeros_like(tokens)], dim=1).int()
        return Split(inputs, (tokens[:, 0] > 9).long(), torch.zeros(n, dtype=torch.int64))


BERT = Bert(
    "", pretrained=False, layers=1, hidden=16, heads=2, intermediate=32, vocabulary=20,
    length=9, dropout=0.0, train="all",
)  # fmt: skip
USUAL = Run(
    dataset=FirstWord(),
    model=BERT,
    method=dpsgd(1.0, "corrected"),
    privacy=Privacy(0.5, None, 1e-5, "rdp"),
    optimizer=partial(torch.optim.Adam, lr=0.02),
    sampler="poisson",
    epochs=8,
    batch_size=60,
    seed=0,
    config={"seed": 0, "method": {}, "choices": {"dataset": "", "model": "", "method": ""}},
)


@pytest.mark.slow
def test_a_small_bert_learns_and_is_trained_by_book_keeping():
    record = fit(USUAL, NOWHERE)
    assert record.metrics["test/accuracy"] > 0.8
    assert record.provenance["engine"] == "ghost"


@pytest.mark.slow
def test_physical_batches_are_found_by_trying_on_made_up_texts(monkeypatch):
    monkeypatch.setattr("dpbench.training.trainer.check_measurable", lambda _: None)
    monkeypatch.setattr("dpbench.system.memory.check_measurable", lambda _: None)
    monkeypatch.setattr("dpbench.system.memory.free", lambda _: 2**40)
    record = fit(replace(USUAL, epochs=1, physical_batch_size="auto", device="cpu"), NOWHERE)
    assert record.provenance["physical_batch_size"] > 60


@pytest.mark.parametrize(
    ("model", "why"),
    [(Mlp((4,), "tanh"), "takes no texts"), (replace(BERT, vocabulary=19), "has only 19")],
)
def test_a_model_that_cannot_read_the_texts_is_refused(model, why):
    with pytest.raises(UserError, match=f"texts of 20 tokens and this model {why}: use model="):
        plan(replace(USUAL, model=model))
