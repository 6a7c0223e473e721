"""Small runs on digits, and what a witness sees of them."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from dpbench.learning.data.digits import Digits
from dpbench.learning.models.mlp import Mlp
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.run import Run
from dpbench.runs.training.trainer import fit
from dpbench.step.mechanism.streams import CipherStream
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.step.methods.sgd import sgd

NOWHERE = Path("/nowhere")  # digits need no folder
METHODS = {
    "sgd": sgd(),
    "dpsgd": dpsgd(0.5, "corrected"),
    "dpsgd_f": dpsgd_f(0.5, 10.0, "corrected"),
    "dpsgd_global_adapt": dpsgd_global_adapt(0.5, 5.0, 1.0, 0.1, 10.0, "corrected"),
}


def run_of(method="dpsgd", lr=0.5, **changes):
    """Of a method or one that is named here."""
    usual = {
        "dataset": Digits(0.2),
        "model": Mlp((16,), "tanh"),
        "privacy": Privacy(1.0, None, 1e-5, "rdp"),
        "optimizer": partial(torch.optim.SGD, lr=lr),
        "sampler": "poisson",
        "epochs": 2,
        "batch_size": 128,
        "seed": 0,
    }
    return Run(method=METHODS[method] if isinstance(method, str) else method, **usual | changes)


def keyed(key=0):
    """The stream of a key of equal bytes."""
    return CipherStream(bytes([key]) * 32)


@dataclass
class Witness:
    """Diagnostics that keep what they are shown, and draw from torch's global generator."""

    batches: list = field(default_factory=list)
    epochs: int = 0

    def observer(self, step, train, test):
        self.step, self.train = step, train
        self.start = step.engine.parameters.theta.detach().clone()
        return self

    def before(self, batch):
        torch.rand(7)
        self.batches.append(batch.inputs.clone())

    def end_of_epoch(self):
        self.epochs += 1

    def series(self):
        return {"steps": [len(self.batches)]}


def witnessed(**changes):
    witness = Witness()
    return witness, fit(run_of(diagnostics=witness, **changes), NOWHERE)


def what_it_measured(record):
    return record.metrics, record.history, record.privacy, record.status
