"""Every release of a whole run, with and without one example or user: as far as the ledger says.

Both runs draw the same others into each batch, and the second has the releases of the first. So
they differ in that example, and in what a run keeps of it.
"""

from dataclasses import dataclass
from itertools import repeat

import pytest
import torch

from dpbench.learning.data.derive.calibration import WithCalibration
from dpbench.learning.data.derive.users import Column
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.models.mlp import Mlp
from dpbench.runs.training import temperature
from dpbench.runs.training.conformal import PrivateConformal
from dpbench.runs.training.plan import plan
from dpbench.runs.training.statistics import PrivateColumns, PrivateNormalization
from dpbench.runs.training.temperature import PrivateTemperature
from dpbench.runs.training.trainer import fit
from dpbench.step.mechanism import noise
from dpbench.step.mechanism.sampling import PoissonSampler
from tests.runs.training.small_runs import NOWHERE, run_of
from tests.step.methods.every_method import method_of

pytestmark = pytest.mark.slow

ROWS, PEOPLE = 40, 12


@dataclass(frozen=True)
class Rows:
    """Random rows, and others of one more person; of a size that clips them."""

    others: int
    shape: tuple[int, ...] = (6,)
    train_people: int | None = None
    bounded: int = 0
    name = "rows"
    task = "classification"
    classes = 3
    groups = ("a", "b", "c")
    notes = ()
    train_size = ROWS

    def load(self, folder, seed):
        draw, number = torch.Generator().manual_seed(0), ROWS + self.others
        inputs = torch.randn(ROWS + 4, *self.shape, generator=draw).clamp(-1, 1)
        inputs[ROWS:] = 100 * inputs[ROWS:].sign()
        targets, groups = torch.randint(3, (2, ROWS + 4), generator=draw)
        people = torch.arange(ROWS + 4) % PEOPLE
        people[ROWS:] = PEOPLE
        rows = Split(inputs, targets, groups, people=people if self.train_people else None)
        return Data(rows.take(torch.arange(number)), rows.take(torch.arange(ROWS)))


@pytest.fixture
def released(monkeypatch):
    """released(run, known): each sum, the scale of its noise and the result, which is that of
    `known` if it is given."""

    def make(run, known=None):
        tape = []

        def add(total, scale, *others, add=noise.add_rounded):
            exact = total.double().clone()
            result = add(total, scale, *others) if known is None else known[len(tape)][2]
            tape.append((exact, float(scale), result.clone()))
            return total.copy_(result)

        with monkeypatch.context() as patch:
            patch.setattr(noise, "add_rounded", add)
            patch.setattr(PoissonSampler, "batches", batches)
            patch.setattr(temperature, "poisson_indices", lambda size, *_: torch.arange(size))
            fit(run, NOWHERE, quiet=True)
        return tape

    return make


def batches(sampler, size, stream):
    draw = torch.Generator().manual_seed(0)
    while True:
        drawn = (torch.rand(10, generator=draw) < 0.5).nonzero().flatten()
        yield torch.cat([drawn, torch.arange(10, size)])


def multipliers(planned):
    """Those of all releases in the order of a run."""
    once = [release for step, times in planned.once.entries for release in step.releases * times]
    last = [r for r in once if "temperature" in r.what or "threshold" in r.what]
    query, of_step = planned.method.clip.query, planned.step.releases
    steps = (of_step[::-1] if query and query.before else of_step) * planned.steps
    releases = [*(release for release in once if release not in last), *steps, *last]
    return [release.mechanism.noise_multiplier for release in releases]


COLUMNS = {"bounded": 2}, {"normalization": PrivateColumns(3.0)}
IMAGES = {"shape": (3, 4, 4)}, {"normalization": PrivateNormalization(2.0, 3.0)}
USERS = {"train_people": PEOPLE}, {"users": Column("who", 3), "batch_size": 4}
BALANCED = {"class_count_noise_multiplier": 2.0}
FITS = {
    "temperature": PrivateTemperature(1, 0.5, 0.5, 3, 0.1, 1e-3, 1.0),
    "conformal": PrivateConformal(0.5, 0.1, 0.5, 4, 0.2),
}


@pytest.mark.parametrize(
    ("method", "data", "settings"),
    [
        *(
            ("dpsgd style=layerwise", data, settings | BALANCED)
            for data, settings in (COLUMNS, IMAGES, (COLUMNS[0] | USERS[0], COLUMNS[1] | USERS[1]))
        ),
        *(("dpsgd", {}, {purpose: fit}) for purpose, fit in FITS.items()),
        *zip(("bam", "disk", "dpsgd_f", "geoclip", "raco", "dpsat"), repeat({}), repeat({})),
        *zip(("dc_sgd", "dp_fedavg", "dp_fedsgd"), repeat(USERS[0]), repeat(USERS[1])),
        ("dpsgd_quantile style=layerwise", *USERS),
    ],
)
def test_no_release_of_a_run_moves_further_than_the_ledger_says(released, method, data, settings):
    def run(others):
        rows, chosen = Rows(others, **data), settings.keys() & FITS
        for purpose in chosen:
            rows = WithCalibration(rows, settings[purpose].share, purpose)
        usual = {"dataset": rows, "model": Mlp((4,), "tanh"), "batch_size": 10, "epochs": 1}
        usual["seed"] = 3 if chosen else 0  # by which the last row is held out
        return run_of(method_of(method, None), **usual | settings)

    planned = plan(run(0))
    without = released(run(0))
    with_them = released(run(4 if "users" in settings else 1), without)
    moved = [
        float((one - other).norm()) / scale
        for (one, scale, _), (other, _, _) in zip(with_them, without, strict=True)
    ]
    assert [scale for _, scale, _ in with_them] == [scale for _, scale, _ in without]
    shares = [m * sigma for m, sigma in zip(moved, multipliers(planned), strict=True)]
    assert max(shares) <= 1 + 1e-5
    assert max(shares) > 0.3  # or nothing would be seen
