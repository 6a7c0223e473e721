"""Tiny files in the publishers' formats, for the logic where the original files are absent."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SMALL_CELEBA = {"train": 7, "valid": 2, "test": 3}


@pytest.fixture
def unchecked(monkeypatch):
    """Let loaders read files that no publisher made."""
    monkeypatch.setattr("dpbench.data.fetch.download.verify", lambda source, path: None)


@pytest.fixture
def small_celeba(tmp_path, unchecked) -> Path:
    """A data folder with twelve random photographs in CelebA's layout and proportions."""
    images = tmp_path / "celeba" / "img_align_celeba"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    parts = np.repeat(range(3), list(SMALL_CELEBA.values()))
    attributes = [f"{len(parts)}", "Bald Male Eyeglasses"]
    partition = []
    for row, part in enumerate(parts):
        name = f"{row + 1:06d}.jpg"
        pixels = rng.integers(0, 256, (218, 178, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / name)
        attributes.append(f"{name} -1 {1 if row % 2 else -1:2d} {1 if row % 3 else -1:2d}")
        partition.append(f"{name} {part}")
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_text("\n".join(attributes))
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("\n".join(partition))
    return tmp_path
