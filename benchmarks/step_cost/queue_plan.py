"""`benchmarks/gpu plan`: what each table in the queue for a GPU settles and takes, predicted."""

import json
import math
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page
from dpbench.learning.data.dataset import vocabulary_of
from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import LOSSES
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.training.plan import Plan, plan
from dpbench.runs.training.run import Run
from dpbench.step.gradients import ENGINES, Parameters
from dpbench.system.errors import UserError

from .counted import count
from .operation_counter import Cost, host_us
from .ours import Ours

SLOWER = {"H200": 1.0, "A100": 2.4}
"""How many times as long the same kernels take, by memory bandwidth, which bounds nearly all of a
private step's (NVIDIA's data sheets: H200 SXM 4.8 TB/s, A100 SXM 80 GB 2.04 TB/s)."""

PHYSICAL = 256
"""Examples in one pass, if a run sets no number of its own."""

DOWNLOADS = {
    "cifar10": "CIFAR-10, 170 MB, no licence stated",
    "cifar100": "CIFAR-100, 169 MB, no licence stated",
    "imagenet32": "ImageNet32, 3.5 GB after a login, for research only",
    "celeba": "CelebA, 1.4 GB by hand, for research only",
    "mnist": "MNIST, 12 MB, CC BY-SA 3.0",
    "snli": "SNLI, 95 MB, CC BY-SA 4.0",
    "adult": "Adult, 6 MB, CC BY 4.0",
    "dutch": "Dutch, 5 MB, no licence stated",
    "vit_base": "ViT-B/16 of timm, 346 MB, Apache 2.0",
    "bert_base": "BERT-base, 440 MB, Apache 2.0",
}
"""What a person has to download for a data set or a model, with its licence."""

KIND = ("dataset", "model", "method", "batch_size", "physical_batch_size", "epochs", "augmentation")
"""The settings on which the time of a run depends."""

LENDINGS = {"15 minutes": 0.25, "an hour": 1.0, "a day": 24.0}
"""Hours for which one may have a GPU."""

HEAD = ("piece", "claims", "runs", "H200, h", "A100, h", "memory, GB", "what it is")

EXPLANATION = (
    "Hours are predicted from one step of each kind of run, counted on fake tensors; reading data, "
    "evaluation and start-up come on top. Memory is that of a pass of at most "
    f"{PHYSICAL} examples."
)


class Piece(NamedTuple):
    """A piece of the queue that trains: its name, its table, and the table's overrides."""

    name: str
    table: str
    overrides: list[str]


@dataclass(frozen=True)
class Forecast:
    """What a piece settles and takes: its runs, hours on an H200, bytes, and why there is no number
    for some of its runs."""

    piece: Piece
    title: str
    claims: int
    runs: int
    hours: float
    memory: int
    downloads: tuple[str, ...]
    unknown: str

    @property
    def worth(self) -> float:
        """Claims decided an hour."""
        return (self.claims or 0.5) / max(self.hours, 1e-3)


def pieces(queue: Path) -> Iterator[Piece]:
    """The pieces of a queue that reproduce a table."""
    for line in queue.read_text(encoding="utf-8").splitlines():
        name, _, command = line.partition(" ")
        words = shlex.split(command, comments=True) if name and not name.startswith("#") else []
        if words[:2] == ["dpbench", "reproduce"]:
            places = ("device=", "results_dir=")
            yield Piece(name, words[2], [w for w in words[3:] if not w.startswith(places)])


def forecast(piece: Piece) -> Forecast:
    """What a piece settles and takes, from one counted step of each kind of run."""
    target = target_of(piece.table, piece.overrides)
    kinds: dict[str, list[dict]] = defaultdict(list)
    for cell in target.cells():
        plain = compose(cell)
        kinds[json.dumps([plain[key] for key in KIND], sort_keys=True)].append(plain)
    hours, memory, unknown, needed = 0.0, 0, "", set()
    for first, *others in kinds.values():
        run = build(first)
        planned = plan(run)
        needed |= {first["choices"]["dataset"], first["choices"]["model"]} & DOWNLOADS.keys()
        try:
            cost, examples = counted_step(run, planned)
        except Exception as error:  # of any library
            unknown = f"{run.method.name}: {str(error).splitlines()[0]}"
            continue
        views = run.augmentation.views if run.augmentation else 1
        passes = math.ceil(run.batch_size * views / examples)
        hours += (1 + len(others)) * planned.steps * passes * seconds(cost) / 3600
        memory = max(memory, cost.peak)
    return Forecast(
        piece,
        target.title,
        len(target.claims),
        sum(map(len, kinds.values())),
        hours,
        memory,
        tuple(DOWNLOADS[name] for name in sorted(needed)),
        unknown,
    )


def counted_step(run: Run, planned: Plan) -> tuple[Cost, int]:
    """The cost of one step of a run, and the number of examples it was counted for."""
    size = run.physical_batch_size if isinstance(run.physical_batch_size, int) else PHYSICAL
    examples = min(size, run.batch_size)

    def make() -> Ours:
        with unset_fake_temporarily() as mode:
            assert isinstance(mode, FakeTensorMode)
            with torch.device("meta"):  # where models are built without their weights
                model = run.model.build(run.dataset.shape, run.dataset.classes)
            model = model.to_empty(device="cpu")._apply(mode.from_tensor).train()
        engine = ENGINES["ghost"](model, LOSSES[run.dataset.task], Parameters(model))
        return Ours(model, [_batch(run, examples)], engine, planned.method)

    by_operation = zip(*map(astuple, count(make).values()), strict=True)
    return Cost(*map(sum, by_operation)), examples


def _batch(run: Run, examples: int) -> Batch:
    """Examples of no content."""
    vocabulary = vocabulary_of(run.dataset)
    kind = torch.float32 if vocabulary is None else torch.int64
    numbers = torch.zeros(examples, dtype=torch.int64)
    return Batch(torch.zeros(examples, *run.dataset.shape, dtype=kind), numbers, numbers)


def seconds(cost: Cost) -> float:
    """How long an H200 and its CPU take, the longer of both."""
    return max(cost.device_us, host_us(cost.calls, cost.kernels)) / 1e6


def fitting(forecasts: Iterable[Forecast], hours: float) -> list[Forecast]:
    """The pieces that decide most claims in so many hours, by claims an hour."""
    chosen = []
    for one in sorted(forecasts, key=lambda f: -f.worth):
        if not one.unknown and one.hours <= hours:
            chosen.append(one)
            hours -= one.hours
    return chosen


def page(forecasts: list[Forecast]) -> Page:
    """The table of all pieces, the most claims an hour first, and what to run in a given time."""
    rows = []
    for one in sorted(forecasts, key=lambda f: -f.worth):
        times = (f"{one.hours * factor:.3g}" for factor in SLOWER.values())
        numbers = (f"{one.claims}", f"{one.runs}", *times, f"{one.memory / 1e9:.3g}")
        unknown = f"; not counted: {one.unknown}" if one.unknown else ""
        needs = f" (needs {'; '.join(one.downloads)})" if one.downloads else ""
        rows.append((one.piece.name, *numbers, f"{one.title}{needs}{unknown}"))
    orders = [
        f"In {name}: {', '.join(f.piece.name for f in fitting(forecasts, hours)) or 'nothing'}."
        for name, hours in LENDINGS.items()
    ]
    return Page("The queue for a GPU", [EXPLANATION, Grid("", HEAD, tuple(rows)), orders])


def main(queue: Path) -> None:
    """Print the plan of a queue."""
    print(page([forecast(piece) for piece in pieces(queue)]).markdown)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except UserError as error:
        sys.exit(f"benchmarks/gpu: {error}")
