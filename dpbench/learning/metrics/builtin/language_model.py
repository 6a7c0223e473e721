"""The perplexity of a language model; what it is computed from imports torch."""

from typing import TYPE_CHECKING

from dpbench.learning.metrics.metric import Margin, Metric

if TYPE_CHECKING:
    from torch import Tensor


def perplexity(outputs: "Tensor", targets: "Tensor", groups: object = None) -> float:
    """exp of the mean loss of a token, over the tokens of all texts together; NaN without tokens.

    outputs [n, 1]: the loss of each text in nats, the sum over its tokens; targets [n]: how many
    these are. Infinite above the largest float64.
    """
    return float((outputs.double().sum() / targets.double().sum()).exp())


PERPLEXITY = Metric(
    "perplexity",
    "",
    1,
    "lower",
    margin=Margin(relative=0.02),
    compute=perplexity,
    task="language_model",
)
