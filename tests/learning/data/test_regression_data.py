"""California Housing and Wine Quality: against scikit-learn, and against the files by hand."""

import hashlib
import tarfile

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import fetch_california_housing

from dpbench.learning.data import california, wine
from dpbench.learning.data.california import California
from dpbench.learning.data.derive.unbalanced import Unbalanced
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.learning.data.wine import Wine
from dpbench.system.errors import UserError

SETS = {"california": (California(2064), 18_576, 2_064), "wine": (Wine(320), 1_279, 320)}
BLOCKS = """\
-122.23,37.88,41.0,880.0,129.0,322.0,126.0,8.3252,452600.0
-122.22,37.86,21.0,7099.0,1106.0,2401.0,1138.0,8.3014,358500.0
-122.24,37.85,52.0,1467.0,190.0,496.0,177.0,7.2574,352100.0
"""


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_the_original_file_has_the_split_of_the_paper(regression_folder, name):
    dataset, train, test = SETS[name]
    data = dataset.load(regression_folder, seed=0)
    assert (len(data.train), len(data.test)) == (train, test)
    assert dataset.train_size == train
    inputs = torch.cat([data.train.inputs, data.test.inputs]).double()
    assert torch.allclose(inputs.mean(dim=0), torch.zeros(1, dtype=torch.float64), atol=1e-5)
    assert torch.allclose(inputs.std(dim=0), torch.ones(1, dtype=torch.float64), atol=1e-5)


@pytest.mark.data
def test_scikit_learn_reads_the_same_blocks(regression_folder, tmp_path):
    table = california.read(regression_folder / california.SOURCE.path)
    ours = california.encode(table)
    # What scikit-learn keeps of its download: the same file with the columns in another order.
    joblib.dump(table[:, [8, 7, 2, 3, 4, 5, 6, 1, 0]], tmp_path / "cal_housing_py3.pkz")
    theirs = fetch_california_housing(data_home=tmp_path, download_if_missing=False)
    assert torch.allclose(ours.targets, torch.from_numpy(theirs.target).float())
    scores = (theirs.data - theirs.data.mean(axis=0)) / theirs.data.std(axis=0, ddof=1)
    assert np.allclose(ours.inputs.numpy(), scores, atol=1e-5)


@pytest.mark.data
def test_the_ratings_of_the_wines_are_those_of_the_file(regression_folder):
    path = regression_folder / wine.SOURCE.path
    ratings = pd.read_csv(path, sep=";")["quality"]
    data = Wine(320).load(regression_folder, seed=0)
    ours = torch.cat([data.test.targets, data.train.targets])
    assert sorted(ours.tolist()) == sorted(ratings.tolist())
    assert ours.dtype == torch.float32


def test_a_few_blocks_by_hand(tmp_path):
    (tmp_path / "few.data").write_text(BLOCKS)
    few = california.encode(california.read(tmp_path / "few.data"))
    assert few.targets.tolist() == pytest.approx([4.526, 3.585, 3.521])
    rooms = np.array([880 / 126, 7099 / 1138, 1467 / 177])
    assert few.inputs[:, 2].numpy() == pytest.approx((rooms - rooms.mean()) / rooms.std(ddof=1))
    assert few.inputs[:, 6].argmax() == 0, "the first is the northernmost"


def test_the_archive_is_unpacked_where_the_file_is_missing(tmp_path, unchecked):
    home = tmp_path / "california"
    home.mkdir()
    (tmp_path / "few.data").write_text(BLOCKS)
    with tarfile.open(tmp_path / california.ARCHIVE.path, "w:gz") as tar:
        tar.add(tmp_path / "few.data", california.MEMBER)
    assert len(California(2064).load(tmp_path, seed=0).test) == 3
    digest = hashlib.md5((home / "cal_housing.data").read_bytes())
    assert digest.hexdigest() == hashlib.md5(BLOCKS.encode()).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 1599, 0.2, True, -1])
def test_a_test_set_of_all_rows_or_fewer_than_two_is_refused(size):
    with pytest.raises(UserError, match="test_size must be a whole number from 2 to 1598"):
        Wine(size)


def test_wrappers_keep_the_task_or_refuse_it():
    assert WithValidation(Wine(320), 0.2).task == "regression"
    with pytest.raises(UserError, match="wine is a regression data set"):
        Unbalanced(Wine(320), 0, 0.5)
