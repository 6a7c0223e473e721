"""MLflow, by default in a database of the results folder: `mlflow ui` with that URI shows it."""

import io
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.runs.records.epsilon import released
from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import Points, RunInfo, Tracker

DIGEST, MAX_PARAM = "digest", 500


@dataclass(frozen=True)
class MlflowTracker(Tracker):
    """Runs of one experiment at a tracking server; uri: null for tracking/mlflow/mlflow.db. A
    process that resumes a run deletes the one that its digest names, and logs it whole."""

    experiment: str
    uri: str | None = None

    def start(self, info: RunInfo) -> "MlflowLog":
        client, experiment = self._open(info.folder)
        for run in client.search_runs([experiment], f"tags.{DIGEST} = '{info.digest}'"):
            client.delete_run(run.info.run_id)
        tags = {DIGEST: info.digest, "group": info.group, "terms": info.terms}
        tags |= {f"tag.{number}": tag for number, tag in enumerate(info.tags)}
        run = client.create_run(experiment, tags=tags, run_name=info.name)
        log = MlflowLog(client, run.info.run_id)
        client.log_text(run.info.run_id, json.dumps(info.config, indent=1), "config.json")
        for key, value in info.config.items():
            client.log_param(run.info.run_id, key, str(value)[:MAX_PARAM])
        return log

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        client, experiment = self._open(folder)
        run = client.create_run(experiment, run_name=name).info.run_id
        for suffix, content in files.items():
            if suffix not in ("png", "pdf"):
                client.log_text(run, content.decode(), f"{name}.{suffix}")
        client.set_terminated(run)

    def _open(self, folder: Path) -> tuple[Any, str]:
        """The client, and the id of the experiment, which is made if there is none."""
        from mlflow import MlflowClient

        own = (folder / "mlflow").absolute()
        if self.uri is None:
            own.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(self.uri or f"sqlite:///{own / 'mlflow.db'}")
        if found := client.get_experiment_by_name(self.experiment):
            return client, found.experiment_id
        files = None if self.uri else (own / "artifacts").as_uri()
        return client, client.create_experiment(self.experiment, artifact_location=files)


class MlflowLog:
    """The log of a run at MLflow."""

    def __init__(self, client: Any, run: str):
        self._client, self._run = client, run

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        for name, number in numbers.items():
            self._client.log_metric(self._run, _metric(name), number, now, step)

    def figure(self, name: str, png: bytes | None, points: Points) -> None:
        from PIL import Image

        if png:
            self._client.log_image(self._run, Image.open(io.BytesIO(png)), f"{name}.png")
        self._client.log_text(self._run, points.to_csv(index=False), f"{name}.csv")

    def finish(self, record: Record) -> None:
        self.log(record.privacy["steps"], record.metrics)
        statement = json.dumps(released(record, record.privacy), indent=1)
        self._client.log_text(self._run, statement, "privacy.json")
        self._client.set_tag(self._run, "status", record.status)
        self._client.set_terminated(self._run)


def _metric(name: str) -> str:
    """A name with the characters that MLflow takes; others, as in groups of data, become their
    code points, so that two groups keep curves of their own."""
    return re.sub(r"[^\w\-. :/]", lambda c: f"_{ord(c[0]):x}_", name, flags=re.ASCII)
