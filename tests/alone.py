"""Runs a released folder where there is neither dpbench nor pandas."""

import os
import subprocess
import sys
from pathlib import Path

ALONE = """
import runpy, sys
sys.modules.update(dict.fromkeys(("dpbench", "pandas", "scipy", "transformers")))
script, *sys.argv = sys.argv[1], *sys.argv[1:]
runpy.run_path(script, run_name="__main__")
"""


def printed_alone(out: Path, rows: Path) -> list[str]:
    """The lines that the script of a released folder prints for a CSV file, in a process of its own
    in an empty folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", "-c", ALONE, str(out / "predict.py"), str(rows)]
    (folder := out.with_name("elsewhere")).mkdir()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
