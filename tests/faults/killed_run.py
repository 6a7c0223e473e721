"""A run of twelve steps, in processes of its own that can be killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class KilledRun:
    """A results folder, and the run of twelve steps, put away after each, that goes there."""

    def __init__(self, path: Path, *more: str):
        usual = ["batch_size=360", "epochs=3", "model.widths=[8]", "method=dpsgd_quantile"]
        odd = ["optimizer=adam", "ema_decay=0.9", "schedule=noise_falls", "diagnostics=bias"]
        self.results, self.log = path / "results", path / "steps"
        self.overrides = [*usual, *odd, "diagnostics.every=3", "checkpoint_minutes=1e-9"]
        self.overrides += [f"results_dir={self.results}", *more]

    def after(self, call: str, *arguments) -> list[int]:
        """The exit codes of the processes that a call of `killer.py` has started."""
        asked = json.dumps([self.overrides, str(self.log), *arguments])
        killer = [sys.executable, Path(__file__).with_name("killer.py"), call, asked]
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            killer, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    @property
    def files(self) -> list[Path]:
        return [path for path in self.results.rglob("*") if path.is_file()]

    @property
    def record(self) -> str:
        """What is in the only file that is left, but how and where it was carried out."""
        (path,) = self.files
        said = json.loads(path.read_text())
        del said["provenance"], said["checksum"]
        return json.dumps(said)

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps that were made, in order."""
        return [int(line) for line in self.log.read_text().split()]
