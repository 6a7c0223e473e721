import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.comparison.dashboard.command import parse, report
from dpbench.runs.config.commands import ReportCommand
from dpbench.system.errors import UserError


def test_the_usual_request():
    assert parse([]) == ReportCommand(Path("results"), Path("report.html"), watch=False)
    assert parse(["out=a=b.html"]).out == Path("a=b.html")


def test_the_page_is_written_and_its_path_returned(folder_of, record_of, tmp_path):
    out = tmp_path / "new" / "page.html"
    records = [record_of(seed=s) for s in (0, 1)]
    assert report([f"results_dir={folder_of(records)}", f"out={out}"]) == out
    packed = re.search(r'id="data">([^<]*)<', out.read_text())[1]
    rows = json.loads(gzip.decompress(base64.b64decode(packed)))["rows"]
    assert {row["id"] for row in rows} == {record.digest for record in records}
    assert all(row["command"].startswith("dpbench run dataset=digits") for row in rows)


def test_one_warning_for_all_that_was_left_out(spoiled, tmp_path):
    with pytest.warns(UserWarning, match=r"left out runs/\w+\.json, which .* and 5 more") as said:
        report([f"results_dir={spoiled}", f"out={tmp_path / 'r.html'}"])
    assert len(said) == 1


def test_nowhere_to_write_is_one_sentence(folder_of, record_of, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written .* set out to a path that"):
        report([f"results_dir={folder_of([record_of()])}", f"out={tmp_path / 'file' / 'r.html'}"])


@pytest.mark.slow
def test_the_command_line_ends_with_the_path_or_one_sentence(folder_of, record_of, tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "dpbench", "report", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    out = tmp_path / "r.html"
    done = run(f"results_dir={folder_of([record_of()])}", f"out={out}")
    assert (done.returncode, done.stdout) == (0, f"{out}\n")
    refused = run(f"results_dir={tmp_path / 'none'}")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
