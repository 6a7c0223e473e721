"""Trained models as files: the parameters, and the settings that their model is built from."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.errors import UserError
from dpbench.files import write_atomically

if TYPE_CHECKING:  # a finished run is found without importing torch
    from torch import nn

KEYS = {"settings", "shape", "classes", "parameters"}


def model_path(results: Path, digest: str) -> Path:
    """The file of a run's model in a results folder."""
    return results / "models" / f"{digest}.pt"


def save_model(
    path: Path,
    model: "nn.Module",
    settings: Mapping[str, Any],
    shape: tuple[int, ...],
    classes: int,
) -> None:
    """Write a model's parameters and buffers, with what `load_model` needs, atomically.

    settings: those of the group `model`. shape: of one input. classes: the number of outputs.
    """
    import torch

    values = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    content = {"settings": dict(settings), "shape": [*shape], "classes": classes}
    buffer = io.BytesIO()
    torch.save(content | {"parameters": values}, buffer)
    write_atomically(path, buffer.getvalue())


def load_model(path: str | Path) -> "nn.Module":
    """The model that a run with `save_model=true` has trained, in evaluation mode on the CPU.

    Its inputs are [B, *shape], prepared as the run's data set prepares them. Only plain values and
    tensors are read from the file. Raises UserError for a file that is not such a model, and for
    one whose model is no option here.
    """
    import torch

    from dpbench.config import buildable
    from dpbench.models.architecture import Architecture

    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(
            f"{path} does not exist: models are written by runs with save_model=true."
        ) from error
    except Exception as error:  # torch does not document the types
        raise UserError(f"{path} is not the model of a run ({type(error).__name__}).") from error
    if not isinstance(saved, dict) or saved.keys() != KEYS:
        raise UserError(f"{path} is not the model of a run with save_model=true.")
    architecture = buildable.build_as(Architecture, "model", saved["settings"])
    model = architecture.build(tuple(saved["shape"]), saved["classes"])
    try:
        model.load_state_dict(saved["parameters"])
    except RuntimeError as error:
        raise UserError(
            f"{path} has the parameters of another model than its settings build: it was written "
            "by another version."
        ) from error
    return model.eval()
