"""Trained models as files: the parameters, and the settings that their model is built from."""

import hashlib
import hmac
import io
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dpbench.runs.records.folder import MODELS
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, first_line
from dpbench.system.files import write_once
from dpbench.system.seeds import torch_state_kept
from dpbench.system.validate import path_of

if TYPE_CHECKING:  # a finished run is found without importing torch
    from torch import Tensor, nn

    from dpbench.learning.data.tokens import TextPreparation

KEYS = {"settings", "shape", "classes", "state", "buffers", "inputs", "outputs"}

PRIVACY_KEY = "privacy"
"""The key of the epsilon with its terms, in words; older files have none."""

TEXTS_KEY = "texts"
"""The key of how texts become inputs, in the models that read them."""

SALT = ".salt"
"""The file beside the models with the key of names that say nothing of the data."""

WITHOUT_WEIGHTS = {
    "pretrained": False,
    **dict.fromkeys(("package", "weights", "hub", "revision", "checksum")),
}
"""Settings of a model with which it is built without files from elsewhere: applied when a model is
saved, and when it is loaded, as a file may come from somebody else."""

TEXTS_AT_ONCE = 64
"""The texts in a pass of a language model, whose outputs have a number for each possible token."""

TOLERANCE = 1e-3
"""By how much the outputs may differ between machines, relative to the largest."""


def model_path(results: Path, digest: str, noise: str) -> Path:
    """The file of a run's model in a results folder.

    A run is named by its settings, among them the checksum of one's own data: with the name alone,
    whoever knows all rows but one can tell candidates for it apart. A model that may be released,
    of noise=secure, is therefore named by a keyed hash, whose key stays beside it.
    """
    folder = results / MODELS
    if noise == "secure":
        key = write_once(folder / SALT, secrets.token_bytes(32))
        digest = hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()[:16]
    return folder / f"{digest}.pt"


def model_file(record: Record, results_dir: str | Path = "results") -> Path:
    """Where the model of a run with `save_model=true` is."""
    return model_path(Path(results_dir), record.digest, record.config.get("noise", "seeded"))


def has_model(record: Record, results_dir: str | Path) -> bool:
    """Whether a results folder, in which nothing is written, has the model of a run."""
    named = record.config.get("noise") != "secure" or (Path(results_dir) / MODELS / SALT).is_file()
    return named and model_file(record, results_dir).is_file()


def serialised(
    model: "nn.Module",
    settings: Mapping[str, Any],
    inputs: "Tensor",
    classes: int,
    privacy: str,
    texts: "TextPreparation | None" = None,
) -> bytes:
    """The content of a file that `load_model` reads.

    settings: of the group `model`. inputs: synthetic ones [B, *shape], whose outputs are kept to
    check the loaded model by. classes: the number of outputs. privacy: its epsilon with its terms.
    """
    import torch

    from dpbench.learning.models.modes import in_mode

    with torch_state_kept(inputs.device), torch.no_grad(), in_mode(model, training=False):
        outputs = model(inputs)
    content = {
        "settings": _without_weights(settings),
        "shape": [*inputs.shape[1:]],
        "classes": classes,
        "state": {name: _plain(value) for name, value in model.state_dict().items()},
        "buffers": {name: _plain(value) for name, value in model.named_buffers()},
        "inputs": _plain(inputs),
        "outputs": _plain(outputs),
        PRIVACY_KEY: privacy,
        **({TEXTS_KEY: msgspec.to_builtins(texts)} if texts else {}),
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _without_weights(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, **{k: v for k, v in WITHOUT_WEIGHTS.items() if k in settings}}


def _plain(value: Any) -> Any:
    import torch

    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def load_model(path: str | Path) -> "nn.Module":
    """The model that a run with `save_model=true` has trained, in evaluation mode on the CPU.

    Its inputs are [B, *shape], prepared as the run's data set prepares them; one that reads texts
    has a function `classify` from a list of them, or of pairs, to their classes, a language model
    `perplexity`. Only plain values and tensors are read from the file, which may come from somebody
    else. Raises UserError for a file that is no such model, or whose settings build none here, or
    another one.
    """
    import torch

    file = path_of("the model", str(path), "file")
    if not file.exists():
        raise UserError(f"{path} does not exist: models are written by runs with save_model=true.")
    if not file.is_file():  # a pipe might never end
        raise UserError(f"{path} is not a file.")
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch does not document the types
        raise UserError(f"{path} is not the model of a run ({type(error).__name__}).") from error
    if not isinstance(saved, dict) or saved.keys() - {PRIVACY_KEY, TEXTS_KEY} != KEYS:
        raise UserError(f"{path} is not the model of a run with save_model=true.")
    try:
        with torch_state_kept(torch.device("cpu")), torch.no_grad():
            _check_stored(saved)
            model: Any = _built(saved)
            outputs = model(saved["inputs"])
            expected = saved["outputs"]  # NaN of a diverged run
            atol = TOLERANCE * float(expected.nan_to_num().abs().max())
            same = torch.allclose(outputs, expected, TOLERANCE, atol, equal_nan=True)
            if TEXTS_KEY in saved:
                _read_texts(model, saved)
    except UserError:
        raise
    except Exception as error:  # the file may contain anything
        why = first_line(error, type(error).__name__)
        raise UserError(f"{path} does not fit the model that its settings build: {why}") from error
    if not same:
        raise UserError(
            f"{path} is of a model that computes with more than its parameters and buffers, or was "
            "written by another version: its outputs are not those that it was saved with."
        )
    return model


def _read_texts(model: Any, saved: Mapping[str, Any]) -> None:
    """Give a model its function of texts; ValueError for a preparation of another model."""
    import torch

    from dpbench.learning.data.tokens import TextPreparation

    prepare = msgspec.convert(saved[TEXTS_KEY], TextPreparation)
    if prepare.length != saved["shape"][-1] or len(prepare.classes or [0]) != saved["classes"]:
        raise ValueError("a preparation of texts for another model")

    @torch.no_grad()
    def classify(texts: Sequence[Any]) -> list:
        return [prepare.classes[k] for k in model(prepare(texts)).argmax(1).tolist()]

    @torch.no_grad()
    def perplexity(texts: Sequence[Any]) -> list[float]:
        """exp of the mean loss of each text's tokens, NaN for a text of one."""
        parts = prepare(texts).split(TEXTS_AT_ONCE)
        means = [model(part).squeeze(1) / part[:, 1].sum(1) for part in parts]
        return torch.cat(means).exp().tolist()

    if prepare.classes:
        model.classify = classify
    else:
        model.perplexity = perplexity


def _check_stored(saved: Mapping[str, Any]) -> None:
    """ValueError for a tensor that stands for more numbers than the file has: a repeated one."""
    import torch

    tensors = [saved["inputs"], saved["outputs"], *saved["state"].values()]
    for tensor in (*tensors, *saved["buffers"].values()):
        if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous():
            raise ValueError("a tensor that is not stored whole")


def _built(saved: Mapping[str, Any]) -> "nn.Module":
    import torch

    from dpbench.learning.models.architecture import Architecture
    from dpbench.runs.config import buildable

    settings = _without_weights(saved["settings"])
    architecture = buildable.build_as(Architecture, "model", settings)
    shape, classes = tuple(saved["shape"]), saved["classes"]
    with torch.device("meta"):  # a model that does not fit might not fit into memory either
        architecture.build(shape, classes).load_state_dict(saved["state"], assign=True)
    model = architecture.build(shape, classes)
    model.load_state_dict(saved["state"])
    for name, value in model.named_buffers():
        value.copy_(saved["buffers"][name])
    return model.eval()
