"""`--config-dir DIR` on every command that takes options."""

import json

import pytest

from tests.plugin_files import SHARP, write


@pytest.mark.slow
def test_every_command_with_options_takes_the_flag(command, tmp_path):
    folder = write(tmp_path / "added", {"method/sharp.yaml": SHARP})
    flag, where = ["--config-dir", folder], f"results_dir={tmp_path}"
    assert "method=sharp" in command("list", "method", *flag).out
    small = ["epochs=1", "model=logistic", "batch_size=512", where]
    assert json.loads(command("epsilon", "method=sharp", *small, *flag).out[-1])["steps"] == 3
    assert len(command("run", "-m", "method=sharp,sgd", *small, *flag).out) == 2
    table = ["table.methods=[sharp]", "table.seeds=[0]", "table.claims={}"]
    done = command("reproduce", *flag, "demo", *small, *table)
    assert "| sharp |" in "\n".join(done.out)
    found = command("search", "N=1", "method=sharp", "optimizer.lr=0.1,0.2", *small, *flag)
    assert "method=sharp" in "\n".join(found.out)
    refused = command("report", *flag)
    assert (refused.code, refused.err) == (2, ["dpbench: report takes no --config-dir."])
