"""The settings of a model's pre-trained weights.

A run is identified by the checksum of its weights, not by their path.
"""

from collections.abc import Mapping
from typing import Any

from dpbench.data.fetch.weights import check_checksum, verified_checksum, weights_file
from dpbench.system.errors import UserError


def named_by_content(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's settings with the checksum of its weights, if they are a file or folder.

    Raises UserError if it does not exist or its checksum differs from the configured one.
    """
    named = dict(model)
    if named.get("weights") is not None:
        named["checksum"] = verified_checksum(weights_file(named["weights"]), named.get("checksum"))
    return named


def check_weights(pretrained: bool, weights: object, checksum: str | None) -> None:
    """UserError for a malformed checksum, and for weights of a model with random initialisation."""
    check_checksum("model", checksum)
    if not pretrained and (weights, checksum) != (None, None):
        what = "weights" if weights is not None else "checksum"
        raise UserError(
            f"model.{what} needs model.pretrained=true, and this model has random weights."
        )
