"""Weights & Biases: offline by default, and `wandb sync results/tracking/wandb/offline-*` later."""

import io
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import UserError
from dpbench.files import write_atomically
from dpbench.records.record import Record
from dpbench.records.trackers import About
from dpbench.validate import one_of, quoted

AXIS = "step"
"""The axis of every curve: diagnostics of a step may come after the epoch that the step is in."""


@dataclass(frozen=True)
class WandbTracker:
    """A run in `project`, named by its digest, in the group of its table and method.

    mode: offline or online. Nothing of the machine, its code or its terminal is recorded.
    """

    project: str
    mode: str

    def __post_init__(self) -> None:
        one_of("tracker.wandb.mode", self.mode, ("offline", "online"))
        if not re.fullmatch(r"[^/\\#?%:\s]{1,100}", self.project):
            raise UserError(
                f"tracker.wandb.project={quoted(self.project)} is no name of a project there: use "
                "letters, digits, '.', '_' and '-'."
            )

    def start(self, about: About) -> "WandbLog":
        memory = about.folder / "wandb" / f"{about.digest}.json"
        known = _read(memory) if about.steps_done else None
        # A run that is made anew is another one there, for an identity cannot be used again.
        known = known or {"id": f"{about.digest}-{secrets.token_hex(4)}", "told": {}}
        run = self._init(about.folder, about.digest, about.group, "run", known["id"], about.config)
        run.define_metric("*", step_metric=AXIS)
        return WandbLog(run, memory, known)

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        import wandb

        run = self._init(folder, name, name, "table", None, {})
        artifact = wandb.Artifact(name, type="table")
        for suffix, content in files.items():
            with artifact.new_file(f"{name}.{suffix}", mode="wb") as file:
                file.write(content)
        run.log_artifact(artifact)
        run.finish()

    def _init(
        self, folder: Path, name: str, group: str, kind: str, identity: str | None, config: dict
    ):
        # Before the import, which asks; nothing leaves this machine unless mode says so.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=self.project,
            mode=self.mode,  # type: ignore[arg-type]
            dir=str(folder),
            name=name,
            group=group,
            job_type=kind,
            id=identity,
            config=config,
            resume="allow" if identity else None,
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                silent=True,
                host="-",
                disable_git=True,
                save_code=False,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        )


class WandbLog:
    """A run there can only be added to. So a file beside it remembers, for who goes on with it, its
    identity and the last step that was told of each number."""

    def __init__(self, run, memory: Path, known: dict):
        self._run, self._memory, self._known = run, memory, known

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        told = self._known["told"]
        new = {name: number for name, number in numbers.items() if step > told.get(name, -1)}
        if new:
            self._run.log({AXIS: step, **new})
            told.update(dict.fromkeys(new, step))
            write_atomically(self._memory, json.dumps(self._known).encode())

    def picture(self, name: str, png: bytes) -> None:
        import wandb
        from PIL import Image

        self._run.log({name: wandb.Image(Image.open(io.BytesIO(png)))})

    def finish(self, record: Record) -> None:
        privacy = {f"privacy/{k}": v for k, v in record.privacy.items() if k != "ledger"}
        self._run.summary.update({**record.metrics, **privacy, "status": record.status})
        self._run.summary["ledger"] = record.privacy["ledger"]
        self._run.finish()
        self._memory.unlink(missing_ok=True)


def _read(memory: Path) -> dict | None:
    try:
        return json.loads(memory.read_text())
    except (OSError, ValueError):
        return None
