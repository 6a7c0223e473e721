import torch

from dpbench.learning.data.digits import CLASS_SIZES, Digits


def test_the_class_sizes_are_those_of_the_images_and_add_up(tmp_path):
    data = Digits(test_share=0.2).load(tmp_path, seed=0)
    targets = torch.cat([data.train.targets, data.test.targets])
    assert tuple(torch.bincount(targets).tolist()) == CLASS_SIZES
    digits = Digits(test_share=0.2)
    assert abs(sum(digits.class_sizes) - digits.train_size) < 1e-6
