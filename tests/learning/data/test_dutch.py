import pytest
import torch

from dpbench.learning.data.dutch import Dutch, encode, read

ARFF = """\
@relation some{people}

@attribute sex {2,1}
@attribute age {17,15,16}
@attribute prev_residence_place {2,1,9}
@attribute occupation {5_4_9,2_1}

@data

1,16,1,2_1
2,15,2,5_4_9
2,16,1,2_1
"""


@pytest.fixture
def examples(tmp_path):
    (tmp_path / "some.arff").write_text(ARFF)
    return encode(read(tmp_path / "some.arff"))


def test_features_are_categories_that_occur_and_groups_the_sexes(examples):
    assert examples.inputs.tolist() == [[0, 0, 0, 1], [1, 1, 1, 0], [1, 0, 0, 1]]
    assert examples.targets.tolist() == [1, 0, 1]
    assert examples.groups.tolist() == [0, 1, 1]


@pytest.mark.data
def test_groups_by_two_attributes_are_their_intersections(data_folder):
    dutch = Dutch(test_share=0.2, group=["sex", "country_birth"])
    assert dutch.groups[3:] == tuple(f"female & country_birth {code}" for code in (1, 2, 3))
    data, usual = (one.load(data_folder, seed=0) for one in (dutch, Dutch(test_share=0.2)))
    assert torch.equal(data.test.groups // 3, usual.test.groups)
    counts = torch.bincount(torch.cat([data.train.groups, data.test.groups])).tolist()
    assert counts == [28_105, 711, 1_331, 27_953, 830, 1_490]


@pytest.mark.data
def test_runs_that_differ_only_in_their_seed_read_the_file_once(data_folder, monkeypatch):
    one = Dutch(test_share=0.2).load(data_folder, seed=0)
    monkeypatch.setattr("dpbench.data.dutch.read", lambda path: pytest.fail("it was read again"))
    other = Dutch(test_share=0.2).load(data_folder, seed=1)
    assert one.train.inputs.sum(0).tolist() != other.train.inputs.sum(0).tolist()
    with pytest.raises(pytest.fail.Exception, match="it was read again"):
        Dutch(test_share=0.2, group="citizenship").load(data_folder, seed=0)


@pytest.mark.data
def test_the_original_file_gives_59_features_of_0_and_1(data_folder):
    data = Dutch(test_share=0.2).load(data_folder, seed=0)
    assert (len(data.train), len(data.test)) == (48_336, 12_084)
    inputs = torch.cat([data.train.inputs, data.test.inputs])
    assert inputs.unique().tolist() == [0, 1]
    assert (inputs[:, 2:].sum(dim=1) == 9).all()
    assert (inputs.sum(dim=0) > 0).all()
