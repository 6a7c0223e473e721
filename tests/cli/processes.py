"""Commands in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]


def process(*arguments, **environment):
    """What `python -m dpbench` prints, by line, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "dpbench", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return SimpleNamespace(
        code=done.returncode, out=done.stdout.splitlines(), err=done.stderr.splitlines()
    )
