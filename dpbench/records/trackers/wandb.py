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
from dpbench.records.trackers import RunInfo
from dpbench.validate import one_of, quoted

AXIS = "step"
"""The x-axis of every curve, as wandb's own step may not decrease: diagnostics come late."""


@dataclass(frozen=True)
class WandbTracker:
    """A run in `project`, named by its digest, in the group of its table and method.

    mode: offline or online. Nothing about the machine, the code or the terminal is recorded.
    """

    project: str
    mode: str

    def __post_init__(self) -> None:
        one_of("tracker.wandb.mode", self.mode, ("offline", "online"))
        if not re.fullmatch(r"[^/\\#?%:\s]{1,100}", self.project):
            raise UserError(
                f"tracker.wandb.project={quoted(self.project)} is not a valid project name: use "
                "letters, digits, '.', '_' and '-'."
            )

    def start(self, info: RunInfo) -> "WandbLog":
        path = info.folder / "wandb" / f"{info.digest}.json"
        state = _read(path) if info.steps_done else None
        # A repeated run needs a new id, as wandb does not reuse ids.
        state = state or {"id": f"{info.digest}-{secrets.token_hex(4)}", "logged": {}}
        run = self._init(info.folder, info.digest, info.group, "run", state["id"], info.config)
        run.define_metric("*", step_metric=AXIS)
        return WandbLog(run, path, state)

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
        self, folder: Path, name: str, group: str, kind: str, run_id: str | None, config: dict
    ):
        # Read at import; nothing leaves this machine unless mode is online.
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
            id=run_id,
            config=config,
            resume="allow" if run_id else None,
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
    """A run at wandb, which is append-only: a file beside it has the run's id and the last logged
    step of each number, for a process that resumes the run."""

    def __init__(self, run, path: Path, state: dict):
        self._run, self._path, self._state = run, path, state

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        logged = self._state["logged"]
        new = {name: number for name, number in numbers.items() if step > logged.get(name, -1)}
        if new:
            self._run.log({AXIS: step, **new})
            logged.update(dict.fromkeys(new, step))
            write_atomically(self._path, json.dumps(self._state).encode())

    def picture(self, name: str, png: bytes) -> None:
        import wandb
        from PIL import Image

        self._run.log({name: wandb.Image(Image.open(io.BytesIO(png)))})

    def finish(self, record: Record) -> None:
        privacy = {f"privacy/{k}": v for k, v in record.privacy.items() if k != "ledger"}
        self._run.summary.update({**record.metrics, **privacy, "status": record.status})
        self._run.summary["ledger"] = record.privacy["ledger"]
        self._run.finish()
        self._path.unlink(missing_ok=True)


def _read(path: Path) -> dict | None:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
