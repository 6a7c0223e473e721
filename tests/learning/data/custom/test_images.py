"""Images of the user's own: class folders, and those that the `datasets` library loads."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dpbench.learning.data.custom.source import OwnTable
from dpbench.learning.data.custom.table import labels_of
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest, scientific
from dpbench.runs.records.reading import read
from dpbench.system.errors import UserError


def settings(folder, *more):
    return ["dataset=images", f"dataset.folder={folder}", "dataset.size=8", *more]


def test_folders_are_classes_and_groups(pets):
    run = run_of(run_config(settings(pets)))
    config = run.config
    data = run.dataset.load(pets, 0)
    assert config["choices"]["dataset"] == "images:pets"
    assert "folder" not in scientific(config)["dataset"]
    assert (run.dataset.classes, run.dataset.groups) == (2, ("cat", "dog"))
    assert data.train.inputs.shape == (run.dataset.train_size, 3, 8, 8) == (32, 3, 8, 8)
    assert data.train.inputs.dtype == torch.uint8
    for split in (data.train, data.test):
        light = split.inputs.float().mean((1, 2, 3)) > 70
        assert torch.equal(light.long(), split.targets)
        assert torch.equal(split.groups, split.targets)


def test_the_classes_can_be_named_as_groups(pets):
    run = run_of(run_config(settings(pets, "dataset.group=class folder")))
    data = run.dataset.load(pets, 0)
    assert run.dataset.groups == ("cat", "dog")
    assert torch.equal(data.train.groups, data.train.targets)


def test_they_can_be_grey(pets):
    run = run_of(run_config(settings(pets, "dataset.channels=1")))
    assert run.dataset.load(pets, 0).train.inputs.shape[1:] == run.dataset.shape == (1, 8, 8)


@pytest.mark.slow
def test_a_run_on_them_is_like_any_other(pets, tmp_path):
    small = ["model=logistic", "epochs=1", "batch_size=8", f"results_dir={tmp_path}"]
    record = read(load_or_run(run_config(settings(pets, *small))))
    assert "test/accuracy/dog" in record.metrics


@pytest.mark.slow
def test_folders_in_the_shape_of_cifar100_are_trained_on(tmp_path):
    """A hundred classes of photographs of 32 x 32, as public copies of it have them."""
    draw = np.random.default_rng(0)
    for name in (f"class_{k:02d}" for k in range(100)):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(10):
            pixels = draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / name / f"{number:04d}.png")
    words = settings(tmp_path / "train", "dataset.size=32", "dataset.test_share=0.5")
    run = run_of(run_config(words))
    assert (run.dataset.classes, run.dataset.shape) == (100, (3, 32, 32))
    assert run.dataset.load(tmp_path / "train", 0).train.targets.unique().numel() == 100
    small = ["model=logistic", "epochs=1", "batch_size=64", f"results_dir={tmp_path / 'out'}"]
    record = read(load_or_run(run_config([*words, *small])))
    assert "test/accuracy/class_99" in record.metrics


@pytest.mark.parametrize("change", ["add", "rename", "alter"])
def test_a_changed_folder_is_another_run(pets, change):
    before = digest(compose(settings(pets)))
    first = pets / "cat" / "0.png"
    if change == "add":
        Image.new("RGB", (8, 8)).save(pets / "cat" / "new.png")
    elif change == "rename":
        first.rename(pets / "dog" / "100.png")
    else:
        Image.new("RGB", (8, 8)).save(first)
    assert digest(compose(settings(pets))) != before


LITTER = (
    ".ipynb_checkpoints/0.png",
    "cat/.ipynb_checkpoints/0-checkpoint.png",
    "cat/._0.png",
    "cat/.DS_Store",
    "cat/Thumbs.db",
    "dog/desktop.ini",
    "__MACOSX/cat/0.png",
    "dog/__MACOSX/._0.png",
)
"""What editors and systems leave in folders, some of which looks like images."""


def litter(pets):
    image = (pets / "cat" / "0.png").read_bytes()
    for name in LITTER:
        (pets / name).parent.mkdir(parents=True, exist_ok=True)
        (pets / name).write_bytes(image)


def test_hidden_and_system_files_are_not_read(pets):
    before, whole = (
        digest(compose(settings(pets))),
        run_of(run_config(settings(pets))).dataset.load(pets, 0),
    )
    litter(pets)
    assert digest(compose(settings(pets))) == before
    read_again = run_of(run_config(settings(pets))).dataset.load(pets, 0)
    assert torch.equal(read_again.train.inputs, whole.train.inputs)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0.heic", b"\0\0\0\x18ftypheic"),
        ("0.JFIF", b"\xff\xd8\xff\xe0"),
        ("0", b"\x89PNG"),
        ("0.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    ],
)
def test_an_image_that_cannot_be_read_is_named_and_not_left_out(pets, name, content):
    (pets / "cat" / name).write_bytes(content)
    with pytest.raises(UserError, match=f"cat/{name} is neither an image that can be read "):
        run_config(settings(pets))


def test_notes_among_images_are_no_examples(pets):
    before = compose(settings(pets))["dataset"]["rows"]
    (pets / "cat" / "README").write_text("cats" + "é" * 4096, encoding="utf-8")
    (pets / "cat" / "boxes.json").write_text("{}")
    (pets / "labels.csv").write_bytes(b"\xff")
    assert compose(settings(pets))["dataset"]["rows"] == before


@pytest.mark.slow
def test_the_datasets_library_does_not_read_it_either(pets, no_cache):
    asked = ["dataset=hub_images", f"dataset.path={pets}", "dataset.size=8"]
    before = digest(compose(asked))
    litter(pets)
    assert digest(compose(asked)) == before


def test_a_folder_behind_a_link_is_read_and_is_in_the_checksum(pets, tmp_path):
    before = compose(settings(pets))["dataset"]
    moved = (pets / "dog").rename(tmp_path / "elsewhere")
    (pets / "dog").symlink_to(moved)
    (pets / "dog" / "up").symlink_to(pets)
    linked = compose(settings(pets))["dataset"]
    assert (linked["checksum"], linked["rows"]) == (before["checksum"], before["rows"])
    Image.new("RGB", (8, 8)).save(moved / "0.png")
    assert compose(settings(pets))["dataset"]["checksum"] != before["checksum"]
    (pets / "cat" / "lost.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"cat/lost\.png cannot be read: No such file"):
        compose(settings(pets))


def test_sixteen_bits_are_the_same_picture_as_eight(pets, tmp_path):
    """As from a microscope; they were cut off at 255, which is white."""
    for path in pets.rglob("*.png"):
        grey = Image.open(path).convert("L")
        grey.save(path)
        deep = tmp_path / "deep" / path.relative_to(pets)
        deep.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(grey).astype("uint16") * 257).save(deep)
    both = [run_of(run_config(settings(folder))).dataset for folder in (pets, tmp_path / "deep")]
    eight, sixteen = (data.load(pets, 0).train for data in both)
    assert torch.equal(eight.inputs, sixteen.inputs)


def test_a_cut_image_is_named(pets):
    image = pets / "dog" / "3.png"
    image.write_bytes(image.read_bytes()[:60])
    run = run_of(run_config(settings(pets)))
    with pytest.raises(UserError, match=r"dog/3.png is not an image, or is truncated: replace it"):
        run.dataset.load(pets, 0)


def test_folders_without_images_or_classes_are_refused(pets):
    (pets / "owl").mkdir()
    with pytest.raises(UserError, match="a folder of images for each class, but has no images in "):
        compose(settings(pets))
    with pytest.raises(UserError, match="for each class, but has 0 folders"):
        compose(settings(pets / "cat"))
    (pets / "cat").rename(pets / "owl" / "cat")
    with pytest.raises(UserError, match="for each class, but has 1 folder"):
        compose(settings(pets / "owl"))
    (pets / "owl" / "cat").rename(pets / "cat")
    (pets / "owl").rmdir()
    with pytest.raises(UserError, match=r"dataset\.channels must be 3 or 1, got 4"):
        run_of(run_config(settings(pets, "dataset.channels=4")))


def test_images_of_no_class_are_refused(pets):
    (pets / "fox.PNG").write_bytes((pets / "cat" / "0.png").read_bytes())
    with pytest.raises(UserError, match=r"images of no class beside its folders, such as fox\.PNG"):
        compose(settings(pets))


def test_splits_are_not_taken_for_classes(tmp_path):
    """As they are in the folders of many data sets, where a model would tell train from test."""
    for part in ("train", "Test"):
        (tmp_path / part / "cat").mkdir(parents=True)
    with pytest.raises(UserError, match="has the folders Test and train, which are splits, not cl"):
        compose(settings(tmp_path))


def test_splits_beside_other_folders_are_not_taken_for_classes(pets):
    for part in ("train", "test"):
        (pets / part).mkdir()
        Image.new("L", (8, 8), 7).save(pets / part / "0.png")
    with pytest.raises(UserError, match="has the folders test and train, which are splits, not cl"):
        compose(settings(pets))
    shutil.rmtree(pets / "test")
    assert compose(settings(pets))["dataset"]["groups"][-1] == "train"


@pytest.mark.slow
def test_images_by_the_datasets_library_are_the_same(pets, no_cache):
    run = run_of(run_config(settings(pets)))
    other = run_of(run_config(["dataset=hub_images", f"dataset.path={pets}", "dataset.size=8"]))
    assert other.config["dataset"]["groups"] == ["cat", "dog"]
    ours, theirs = run.dataset.load(pets, 0), other.dataset.load(pets, 0)
    assert sorted(ours.train.targets.tolist() + ours.test.targets.tolist()) == sorted(
        theirs.train.targets.tolist() + theirs.test.targets.tolist()
    )
    light = theirs.train.inputs.float().mean((1, 2, 3)) > 70
    assert torch.equal(light.long(), theirs.train.targets)
    with pytest.raises(UserError, match=r"dataset\.image=label is not an image column"):
        compose([*("dataset=hub_images", f"dataset.path={pets}"), "dataset.image=label"])


def test_rows_without_a_class_are_refused():
    rows = pd.DataFrame({"kind": ["dog", None, "cat"]})
    with pytest.raises(UserError, match=r"dataset\.target=kind has rows without a class"):
        labels_of(OwnTable("rows", rows, {}), "kind")


def test_class_folders_that_differ_only_in_case_are_warned_of(pets):
    (pets / "dog").rename(pets / "Cat")
    with pytest.warns(UserWarning, match=r"pets has 'Cat' and 'cat', which are different classes:"):
        compose(["dataset=images", f"dataset.folder={pets}", "dataset.size=8"])


def test_an_image_in_two_classes_or_splits_is_warned_of(pets, tmp_path):
    (pets / "dog" / "again.png").write_bytes((pets / "cat" / "0.png").read_bytes())
    with pytest.warns(UserWarning, match=r"cat/0\.png and .*dog/again\.png are one image in two"):
        compose(settings(pets))
    (pets / "dog" / "again.png").unlink()
    both = tmp_path / "both"
    for part in ("train", "test"):
        shutil.copytree(pets, both / part)
    (both / "test" / "cat" / "1.png").unlink()  # else the folders are the same
    with pytest.warns(UserWarning, match=r"train/cat/0\.png and .*test/cat/0\.png .*more such"):
        compose(settings(both))


def test_copies_in_one_class_are_counted(pets):
    for number in range(3):
        (pets / "cat" / f"again{number}.png").write_bytes((pets / "cat" / "0.png").read_bytes())
    with pytest.warns(UserWarning, match="^3 images of dataset.folder=.* are copies of others in"):
        compose(settings(pets))


@pytest.fixture
def labelled(pets):
    """A CSV file with the owner and the size of each pet, two pictures of each."""
    names = [f"{kind}/{number}.png" for kind in ("cat", "dog") for number in range(20)]
    frame = pd.DataFrame({"file": names, "owner": [f"p{n // 2}" for n in range(40)]})
    frame["size"] = ["small", "tall"] * 20
    frame["seen"] = ["no", "yes", "yes", "no"] * 10
    frame.sample(frac=1, random_state=0).to_csv(pets.parent / "labels.csv", index=False)
    return frame, pets, f"dataset.labels={pets.parent / 'labels.csv'}"


def test_a_file_of_labels_has_groups_and_people_of_images(labelled):
    _, pets, labels = labelled
    words = settings(pets, labels, "dataset.group=size", "users=column", "users.column=owner")
    run = run_of(run_config([*words, "method=dp_fedsgd", "batch_size=2"]))
    assert (run.dataset.groups, run.dataset.people) == (("small", "tall"), 20)
    data = run.dataset.load(pets, 0)
    assert run.dataset.classes == 2
    train, test = ({*part.people.tolist()} for part in (data.train, data.test))
    assert (len(train), len(test), train & test) == (16, 4, set())
    assert data.train.groups.sum() == 16
    assert len(run.users.of(data.train, 0)) == 16


def test_a_file_of_labels_has_classes_in_place_of_folders(labelled, tmp_path):
    frame, pets, labels = labelled
    flat = tmp_path / "flat"
    flat.mkdir()
    for name in frame["file"]:
        (pets / name).rename(flat / name.replace("/", "_"))
    frame["file"] = frame["file"].str.replace("/", "_")
    frame.to_csv(pets.parent / "labels.csv", index=False)
    words = settings(flat, labels, "dataset.target=seen")
    dataset = run_of(run_config(words)).dataset
    assert (dataset.rows, dataset.groups) == (40, ("no", "yes"))
    before = digest(compose(words))
    frame.assign(size="tall").to_csv(pets.parent / "labels.csv", index=False)
    assert digest(compose(words)) != before
    for rows, sentence in (
        (frame[1:], r"has no row of the image cat_0\.png, one of 1"),
        (pd.concat([frame, frame[:1]]), r"has several rows of the image cat_0\.png"),
        (pd.concat([frame, frame[:1].assign(file="x.png")]), r"has a row of x\.png, one of 1 that"),
        (frame.rename(columns={"file": "path"}), "dataset.image=file is unknown"),
        (frame.assign(seen=None), "rows without a class"),
        (frame.assign(file=frame["file"].str[:-4]), "and names 'cat_0' in its first row"),
    ):
        rows.to_csv(pets.parent / "labels.csv", index=False)
        with pytest.raises(UserError, match=sentence):
            compose(words)


@pytest.mark.filterwarnings("ignore:column owner of .* like an identifier")
@pytest.mark.parametrize("form", ["{}\\{}", " ./{}/{} "])
def test_names_of_images_are_as_other_systems_write_them(labelled, form):
    frame, pets, labels = labelled
    names = [form.format(*name.split("/")) for name in frame["file"]]
    frame.assign(file=names).to_csv(pets.parent / "labels.csv", index=False)
    assert compose(settings(pets, labels, "dataset.group=size"))["dataset"]["rows"] == 40


def test_labels_with_other_separators_are_refused(labelled):
    frame, pets, labels = labelled
    frame.to_csv(pets.parent / "labels.csv", index=False, sep=";")
    with pytest.raises(UserError, match=r"single column, .*: save it with commas"):
        compose(settings(pets, labels))
