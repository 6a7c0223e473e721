import numpy as np
import pytest
import torch
from PIL import Image

from dpbench.learning.data.celeba import CelebA, pack, read_photograph
from dpbench.system.errors import UserError

SMALL = CelebA(size=16, target="Male", group="Eyeglasses")


def test_photographs_attributes_and_parts_are_joined_by_name(small_celeba):
    data = SMALL.load(small_celeba, seed=0)
    assert data.train.inputs.shape == (7, 3, 16, 16)
    assert data.train.targets.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert data.train.groups.tolist() == [0, 1, 1, 0, 1, 1, 0]
    tenth = small_celeba / "celeba" / "img_align_celeba" / "000010.jpg"
    assert np.array_equal(data.test.inputs[0].numpy(), read_photograph(tenth, 16))


@pytest.fixture
def kaggle(small_celeba, monkeypatch):
    """The same photographs as Kaggle's archive has them."""
    folder = small_celeba / "celeba"
    images = folder / "img_align_celeba"
    images.rename(folder / "images")
    images.mkdir()
    (folder / "images").rename(images / "img_align_celeba")
    for name, skip, header in (("attr_celeba", 1, None), ("eval_partition", 0, ["partition"])):
        lines = folder / f"list_{name}.txt"
        rows = [line.split() for line in lines.read_text().splitlines()[skip:]]
        rows = rows if header is None else [header, *rows]
        rows[0].insert(0, "image_id")
        lines.with_suffix(".csv").write_text("\n".join(map(",".join, rows)))
        lines.unlink()
    monkeypatch.setattr(CelebA, "train_size", 7)
    return small_celeba


def test_the_archive_of_kaggle_is_read_as_the_publishers_files(kaggle):
    data = SMALL.load(kaggle, seed=0)
    assert data.train.targets.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert data.train.groups.tolist() == [0, 1, 1, 0, 1, 1, 0]
    images = kaggle / "celeba" / "img_align_celeba" / "img_align_celeba"
    assert np.array_equal(data.test.inputs[0].numpy(), read_photograph(images / "000010.jpg", 16))


def test_a_list_of_other_parts_is_refused(kaggle, monkeypatch):
    monkeypatch.setattr(CelebA, "train_size", 8)
    with pytest.raises(UserError, match=r"list_eval_partition.csv is truncated or altered"):
        SMALL.load(kaggle, seed=0)


def test_the_second_load_needs_no_photographs(small_celeba):
    first = SMALL.load(small_celeba, seed=0)
    for photograph in (small_celeba / "celeba" / "img_align_celeba").iterdir():
        photograph.unlink()
    assert torch.equal(SMALL.load(small_celeba, seed=0).train.inputs, first.train.inputs)


def test_a_missing_photograph_is_named_and_nothing_is_packed(small_celeba):
    (small_celeba / "celeba" / "img_align_celeba" / "000003.jpg").unlink()
    with pytest.raises(UserError, match=r"000003.jpg is missing .* https://mmlab"):
        SMALL.load(small_celeba, seed=0)
    assert not list((small_celeba / "celeba").glob("*.npy*[!k]"))


def test_a_truncated_photograph_is_named(small_celeba):
    photograph = small_celeba / "celeba" / "img_align_celeba" / "000003.jpg"
    photograph.write_bytes(photograph.read_bytes()[:500])
    with pytest.raises(UserError, match=r"000003.jpg is truncated or altered"):
        SMALL.load(small_celeba, seed=0)


def test_a_pack_of_other_photographs_is_refused(small_celeba):
    photographs = sorted((small_celeba / "celeba" / "img_align_celeba").iterdir())
    pack(photographs[:6], 16, small_celeba / "celeba" / "train_16.npy")
    with pytest.raises(UserError, match="has 6 photographs instead of 7"):
        SMALL.load(small_celeba, seed=0)


def test_a_missing_list_is_named_with_its_page(tmp_path):
    with pytest.raises(UserError, match=r"list_attr_celeba.txt is missing .* https://mmlab"):
        SMALL.load(tmp_path, seed=0)


def test_a_misspelt_attribute_gets_the_nearest(small_celeba):
    with pytest.raises(UserError, match="did you mean Eyeglasses"):
        CelebA(size=16, target="Male", group="Eyeglases").load(small_celeba, seed=0)


def test_the_square_is_cut_from_the_centre(tmp_path):
    pixels = np.zeros((218, 178, 3), np.uint8)
    pixels[20:198] = 255  # the centred square of 178 rows
    Image.fromarray(pixels).save(tmp_path / "image.png")
    assert read_photograph(tmp_path / "image.png", 178).min() == 255
