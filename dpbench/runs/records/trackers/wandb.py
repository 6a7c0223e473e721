"""Weights & Biases, offline by default; upload by `wandb sync results/tracking/wandb/offline-*`."""

import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.runs.records.epsilon import released
from dpbench.runs.records.reading import text_of
from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import Points, RunInfo, Tracker
from dpbench.system.errors import UserError
from dpbench.system.files import write_atomically
from dpbench.system.validate import one_of, quoted

MAX_TAG, MAX_NAME = 64, 128
"""The most characters of a tag, and of the name of a run or a group."""

AXIS = "step"
"""The x-axis of every curve: wandb's own step must not decrease, and diagnostics come late."""


DEFAULTS = {"project": "dpbench", "entity": None, "mode": "offline"}

OFF = "disabled"
"""W&B's mode in which nothing is tracked."""

ID_BYTES = 4
"""Random bytes in the id of a run, written as twice as many hex digits after its digest."""


@dataclass(frozen=True)
class WandbTracker(Tracker):
    """A run in `project` of `entity` (null: the user's own), with `tags` besides those of the run.

    mode: offline, online, or disabled. A null is what W&B's own variable (WANDB_PROJECT,
    WANDB_ENTITY, WANDB_MODE) says, else dpbench, the user's own, and offline. Nothing about code,
    terminal or installed packages is recorded, and of the machine only W&B's and Python's version
    and the platform.
    """

    project: str | None = None
    mode: str | None = None
    entity: str | None = None
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, default in DEFAULTS.items():
            if getattr(self, name) is None:
                value = os.environ.get(f"WANDB_{name.upper()}") or default
                object.__setattr__(self, name, value)
        one_of("tracker.wandb.mode (or WANDB_MODE)", self.mode, ("offline", "online", OFF))
        _check_name("project", str(self.project))
        if self.entity is not None:
            _check_name("entity", self.entity)
        for tag in self.tags:
            if not 0 < len(tag) <= MAX_TAG:
                raise UserError(
                    f"tracker.wandb.tags={quoted(tag)} is not a valid tag: use 1 to {MAX_TAG} "
                    "characters."
                )

    def is_off(self) -> bool:
        return self.mode == OFF

    def start(self, info: RunInfo) -> "WandbLog":
        """A process that resumes a run replaces its offline files, so that `wandb sync` sends one
        run without a gap; online it continues the run there, and repeats the same points."""
        path = info.folder / "wandb" / f"{info.digest}.json"
        # A finished run that is repeated needs a new id, as wandb does not reuse ids.
        run_id = _unfinished(path) or f"{info.digest}-{secrets.token_hex(ID_BYTES)}"
        if _sweep():  # whose agent has named the run
            run_id = os.environ["WANDB_RUN_ID"]
        for folder in path.parent.glob(f"offline-run-*-{run_id}"):
            shutil.rmtree(folder, ignore_errors=True)
        write_atomically(path, json.dumps({"id": run_id}).encode())
        run = self._init(
            info.folder,
            id=run_id,
            name=info.name[:MAX_NAME],
            group=info.group[:MAX_NAME],
            job_type="run",
            tags=[*(tag[:MAX_TAG] for tag in info.tags), *self.tags],
            config=info.config | {"digest": info.digest, "terms": info.terms},
            resume="allow",
        )
        run.define_metric("*", step_metric=AXIS)
        logged = self._logged(info)
        logged.unlink(missing_ok=True)
        return WandbLog(run, path, logged)

    def has(self, info: RunInfo) -> bool:
        return self._logged(info).exists()

    def _logged(self, info: RunInfo) -> Path:
        """The file that says that this run was logged whole, to this project in this mode."""
        where = f"{self.entity or 'own'}-{self.project}-{self.mode}{_sweep()}"
        return info.folder / "wandb" / "logged" / where / info.digest

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        import pandas as pd
        import wandb

        tags = [name[:MAX_TAG], *self.tags]
        run = self._init(folder, name=name, group=name, job_type="table", tags=tags)
        rows = pd.read_csv(io.BytesIO(files["csv"]))
        run.log({name: wandb.Table(dataframe=rows)})  # whose numbers can be drawn there
        if "html" in files:  # a panel, in which the page works as in a browser
            run.log({f"{name}/page": wandb.Html(files["html"].decode(), inject=False)})
        artifact = wandb.Artifact(name, type="table")
        for suffix, content in files.items():
            with artifact.new_file(f"{name}.{suffix}", mode="wb") as file:
                file.write(content)
        run.log_artifact(artifact)
        run.finish()

    def _init(self, folder: Path, **about):
        # Read when wandb is imported; nothing leaves this machine unless mode is online.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,  # type: ignore[arg-type]
            dir=str(folder),
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
                x_save_requirements=False,
            ),
            **about,
        )


class WandbLog:
    """The log of a run at wandb. A file keeps its id until it is finished."""

    def __init__(self, run, path: Path, logged: Path):
        self._run, self._path, self._logged = run, path, logged

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({AXIS: step, **numbers})

    def figure(self, name: str, png: bytes | None, points: Points) -> None:
        import wandb
        from PIL import Image

        picture = {name: wandb.Image(Image.open(io.BytesIO(png)))} if png else {}
        self._run.log({**picture, f"{name}/points": wandb.Table(dataframe=points)})

    def finish(self, record: Record) -> None:
        statement = released(record, record.privacy)
        privacy = {f"privacy/{k}": v for k, v in statement.items() if k != "ledger"}
        self._run.summary.update({**record.metrics, **privacy, "status": record.status})
        self._run.summary["ledger"] = record.privacy["ledger"]
        self._run.finish()
        write_atomically(self._logged, b"")
        self._path.unlink(missing_ok=True)


def _check_name(setting: str, name: str) -> None:
    if not re.fullmatch(r"[^/\\#?%:\s]{1,100}", name):
        raise UserError(
            f"tracker.wandb.{setting}={quoted(name)} is not a valid name: use letters, digits, "
            "'.', '_' and '-'."
        )


def _sweep() -> str:
    """`-` and the sweep of W&B's whose agent has started this process; empty without one."""
    named = "WANDB_SWEEP_ID" in os.environ and "WANDB_RUN_ID" in os.environ
    return f"-{os.environ['WANDB_SWEEP_ID']}" if named else ""


def _unfinished(path: Path) -> str | None:
    """The id of an unfinished run; None without a file of one, or if it has any other text: files
    that have the id in their name are deleted."""
    text = text_of(path)
    ids = rf'{{"id": "({re.escape(path.stem)}-[0-9a-f]{{{2 * ID_BYTES}}})"}}\s*'
    found = re.fullmatch(ids, text) if isinstance(text, str) else None
    return found and found[1]
