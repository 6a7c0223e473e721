"""The settings of a model's pre-trained weights.

A run is identified by the checksum of its weights, not by their path.
"""

from collections.abc import Mapping
from typing import Any

from dpbench.learning.data.fetch.published_weights import check_package
from dpbench.learning.data.fetch.weights import check_checksum, verified_checksum, weights_file
from dpbench.system.errors import UserError


def named_by_content(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's settings with the checksum of its weights, if they are a file or folder.

    Raises UserError if it does not exist or its checksum differs from the configured one.
    """
    named = dict(model)
    if named.get("weights") is not None:
        named["checksum"] = verified_checksum(weights_file(named["weights"]), named.get("checksum"))
    return named


def check_weights(
    pretrained: bool, weights: object, checksum: str | None, package: str | None = None
) -> None:
    """UserError for malformed settings, for two places of weights, and for weights of a model with
    random initialisation."""
    check_checksum("model", checksum)
    given = {"weights": weights, "package": package, "checksum": checksum}
    named = [name for name, value in given.items() if value is not None]
    if not pretrained and named:
        raise UserError(
            f"model.{named[0]} needs model.pretrained=true, and this model has random weights."
        )
    if package is not None:
        check_package(package, "model")
        if weights is not None:
            raise UserError(
                "model.package and model.weights both name weights: set one of them to null."
            )


def public_note(name: str, checksum: str | None) -> str:
    """The note on privacy of a model that starts from published weights."""
    which = f" ({checksum})" if checksum else ""
    return (
        f"The model starts from weights of {name}{which}, which are taken to be public: not "
        "covered by epsilon."
    )
