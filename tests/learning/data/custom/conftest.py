"""Small data of the user's own: a table, and images in class folders."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.omissions import extra

ROWS = 60


@pytest.fixture
def people(tmp_path):
    """A CSV file of people: two numbers, a category, a group and a target."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.integers(18, 80, ROWS),
            "wage": draw.normal(50, 9, ROWS).round(2),
            "town": draw.choice(["Bonn", "Rome", "York"], ROWS),
            "sex": draw.choice(["f", "m"], ROWS),
        }
    )
    frame["rich"] = np.where(frame["wage"] > 50, "yes", "no")
    path = tmp_path / "people of.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def pets(tmp_path):
    """A folder with a dark class and a light one."""
    draw = np.random.default_rng(0)
    for name, light in (("cat", 60), ("dog", 250)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(20):
            pixels = (draw.random((9, 12, 3)) * light).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number}.png")
    return tmp_path / "pets"


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    """The `datasets` library writes into the test's folder, and asks no hub."""
    datasets = pytest.importorskip("datasets", reason=extra("hub"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
