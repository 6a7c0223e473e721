"""Event files for TensorBoard: `tensorboard --logdir results/tracking/tensorboard`."""

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import Points, RunInfo, Tracker
from dpbench.system.validate import MAX_NAME


@dataclass(frozen=True)
class TensorboardTracker(Tracker):
    """`tracking/tensorboard/GROUP/DIGEST`: TensorBoard filters runs by that path."""

    def start(self, info: RunInfo) -> "TensorboardLog":
        parts = map(_file_name, info.group.split("/"))
        folder = info.folder.joinpath("tensorboard", *parts, info.digest)
        shutil.rmtree(folder, ignore_errors=True)  # an earlier process's: all is logged again
        writer = _writer(folder)
        writer.add_text("run", f"{info.name} ({', '.join(info.tags)})")
        writer.add_text("terms", info.terms)
        writer.add_text("config", f"```json\n{json.dumps(info.config, indent=1)}\n```")
        return TensorboardLog(writer)

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        writer = _writer(folder / "tensorboard" / "tables" / name)
        writer.add_text(name, files["md"].decode())
        writer.close()


class TensorboardLog:
    def __init__(self, writer):
        self.writer = writer

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)
        self.writer.flush()

    def figure(self, name: str, png: bytes | None, points: Points) -> None:
        if png is None:
            return
        pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
        self.writer.add_image(name, pixels, dataformats="HWC")

    def finish(self, record: Record) -> None:
        self.log(record.privacy["steps"], record.metrics)
        self.writer.close()


def _file_name(name: str) -> str:
    """The name as that of a folder in the folder above: not too long, and not the one above it."""
    shortened = name.encode()[:MAX_NAME].decode(errors="ignore")
    return "_" if shortened in ("", ".", "..") else shortened


def _writer(folder: Path):
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
