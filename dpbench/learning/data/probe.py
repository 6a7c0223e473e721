"""Synthetic examples to check engines on, since private ones must not be used."""

import torch
from torch import Tensor

from dpbench.learning.data.dataset import Dataset, padding_of, vocabulary_of
from dpbench.learning.data.examples import Batch


def probe(dataset: Dataset, views: int) -> Batch:
    """Two synthetic examples with a data set's shape, the same at every call.

    views: copies per example, inputs [2, K, ...]; without that axis for one view.
    """
    draw = torch.Generator().manual_seed(0)
    shape = (2, views, *dataset.shape) if views > 1 else (2, *dataset.shape)
    vocabulary = vocabulary_of(dataset)
    if vocabulary is None:
        inputs = torch.rand(shape, generator=draw)
    else:
        inputs = _texts(shape, vocabulary, padding_of(dataset), draw)
    numbers = torch.arange(2)
    targets = numbers % dataset.classes
    if dataset.task != "classification":
        targets = numbers + float(dataset.task == "language_model")  # which has tokens
    return Batch(inputs, targets, torch.zeros_like(numbers))


def probe_users(dataset: Dataset, most: int) -> Batch:
    """Two synthetic users, the first with `most` examples and the second with half as many."""
    copies = probe(dataset, most)
    inputs = copies.inputs if most > 1 else copies.inputs.unsqueeze(1)
    targets = copies.targets.unsqueeze(1).expand(2, most).clone()
    present = torch.arange(most) < torch.tensor([[most], [(most + 1) // 2]])
    return Batch(inputs, targets, copies.groups, present, torch.arange(2))


def _texts(shape: tuple[int, ...], vocabulary: int, padding: int, draw: torch.Generator) -> Tensor:
    """Pairs of texts int64 [..., 2, T], the second of the two examples half padding."""
    tokens = torch.randint(1, vocabulary, (*shape[:-2], shape[-1]), generator=draw)
    types = (torch.arange(shape[-1]) >= shape[-1] // 4).long().expand_as(tokens).clone()
    for part, rest in ((tokens, padding), (types, 0)):
        part[1, ..., (shape[-1] + 1) // 2 :] = rest
    return torch.stack([tokens, types], dim=-2)
