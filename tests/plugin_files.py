"""A plug-in as somebody would install it: a package with options, and its entry point."""

from pathlib import Path

INIT = "from clipworks.net import Net\n"

NET = '''
import math
from dataclasses import dataclass

from torch import nn

from . import sizes


@dataclass(frozen=True)
class Net:
    """A perceptron."""

    width: int

    def build(self, shape, classes):
        layers = [nn.Linear(math.prod(shape), self.width), nn.Tanh()]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(self.width, classes, sizes.BIAS))


def undeclared(width):
    raise AssertionError("this must not run")
'''

CLIP = '''
from dataclasses import dataclass

from dpbench.step.clipping import ByNorm
from dpbench.step.mechanism.method import Method
from dpbench.step.methods.dpsgd import fixed_clip


@dataclass(frozen=True)
class Softened(ByNorm):
    """R/(norm + constant)."""

    constant: float

    def factors(self, norms, groups):
        return self.bound / (norms + self.constant)


def softened(bound: float, constant: float) -> Method:
    return fixed_clip("softened", Softened(bound, constant), "corrected")
'''

BROKEN_NET = """
import torch
from torch import nn


class Net:
    def __init__(self, width):
        self.width = width

    def build(self, shape, classes):
        if torch.empty(0).is_meta:
            return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
        raise RuntimeError("out of layers")
"""
"""A model that can be planned and cannot be trained."""

SHARP = """
_target_: dpbench.methods.dpsgd.fixed_clip
name: sharp
variant: corrected
clip:
  _target_: dpbench.clipping.functions.Automatic
  bound: 1.0
  constant: 0.001
"""
"""A method of existing parts alone."""

FILES = {
    "clipworks/__init__.py": INIT,
    "clipworks/net.py": NET,
    "clipworks/sizes.py": "BIAS = True\n",
    "clipworks/clip.py": CLIP,
    "clipworks/conf/model/net.yaml": "_target_: clipworks.Net\nwidth: 8\n",
    "clipworks/conf/method/softened.yaml": (
        "# Name: Softened clip\n_target_: clipworks.clip.softened\nbound: 1.0\nconstant: 0.5\n"
    ),
    "clipworks-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: clip-works\nVersion: 1.2\n",
    "clipworks-1.2.dist-info/entry_points.txt": "[dpbench.plugins]\nclipworks = clipworks\n",
}


OTHER = {
    "other/__init__.py": "",
    "other/conf/model/empty.yaml": "",
    "other-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: other\nVersion: 1\n",
    "other-1.dist-info/entry_points.txt": "[dpbench.plugins]\nother = other\n",
}
"""A second plug-in."""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Files by their path in a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
