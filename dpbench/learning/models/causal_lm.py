"""Causal language models, from the transformers library: the loss of a text's next words."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.learning.data.fetch.encoders import network_config
from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.fetch.published_weights import with_weights
from dpbench.learning.models.architecture import REDUCTIONS
from dpbench.learning.models.modes import in_mode
from dpbench.learning.models.pretrained import attention, planning, published_weights_of
from dpbench.learning.models.text import Text, outer_blocks
from dpbench.learning.models.trained_parts import adapt, train_part
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

NETWORKS = "MODEL_FOR_CAUSAL_LM_MAPPING"


@dataclass(frozen=True, kw_only=True)
class CausalLm(Text):
    """A causal language model of transformers, such as GPT-2.

    One example is one text. Inputs are int64 [B, 2, T]: token numbers, and 1 beside those that are
    predicted, else 0. reduction: `mean` or `sum`, how the losses of a text's tokens become the loss
    that is differentiated and clipped. All other settings are as in `dpbench.models.text.Text`,
    but there is no new head: adapters are in all linear maps but the last, and a part that is
    trained with the head there is trained alone.

    Raises UserError for a config of no causal language model, and for weights that lack any.
    """

    reduction: str

    task: ClassVar = "language_model"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("model.reduction", self.reduction, REDUCTIONS)
        if self.train == "head":
            raise UserError(
                "model.train=head has no effect, as a language model gets no new head: use "
                "model.train=lora, or another part."
            )

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """From sums over tokens and their numbers."""
        return REDUCTIONS[self.reduction]

    @property
    def note(self) -> str:
        told = (
            "An example is a text, which is clipped as a whole; its loss is the "
            f"{self.reduction} over its tokens but the first."
        )
        return f"{told} {super().note}".rstrip()

    @property
    def kind(self) -> str:
        return "a language model"

    @cached_property
    def _sizes(self) -> Any:
        if self.config is None:
            raise UserError(
                "model=causal_lm needs a network: set model.package, model.weights (a folder) or "
                "model.hub and model.revision; or use model=gpt2_tiny, which has random weights."
            )
        config = network_config(self.config, self.dropout, NETWORKS, "causal language model")
        config.use_cache = False
        return config

    @property
    def padding(self) -> None:
        """Any: what is padding is not predicted, and nothing before it depends on it."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        network = library("transformers").MODEL_FOR_CAUSAL_LM_MAPPING[type(self._sizes)]
        if not self.pretrained or planning():
            net, checksum = network(self._sizes), None
        else:
            (file, *_), checksum = published_weights_of(self).verified()
            net = with_weights(network, self._sizes, file, ())
        model = NextWords(_with_linear_maps(net), checksum)
        length = getattr(self._sizes, "max_position_embeddings", shape[-1])
        if len(shape) != 2 or shape[0] != 2 or shape[1] > length:
            raise UserError(
                f"this model needs texts of shape (2, {length}) at most, and these inputs are "
                f"{shape}."
            )
        if not planning():
            model.check_mask(shape[1])
        last_map = nn.ModuleList([net.get_output_embeddings()])
        first, last = outer_blocks(net.base_model)
        adapt(net, self, last_map)
        train_part(net, self.train, nn.ModuleList(), first.parameters(), last.parameters())
        return model


def _with_linear_maps(net: Any) -> Any:
    """The network with linear maps in place of GPT-2's Conv1D, which has the weight transposed and
    no rule in the fast engine."""
    for name, module in list(net.named_modules()):
        if type(module) is library("transformers.pytorch_utils").Conv1D:
            inputs, outputs = module.weight.shape
            linear = nn.Linear(inputs, outputs, device=module.weight.device)
            linear.weight = nn.Parameter(module.weight.detach().T.contiguous())
            linear.bias = module.bias
            net.set_submodule(name, linear)
    return net


class NextWords(nn.Module):
    """Losses [B, 1] in nats, each the sum over the tokens of a text that are predicted, from int64
    [B, 2, T]: tokens, and whether each is predicted, which the first never is.

    checksum: of the initial weights. Its attention mask is made here, as that of the library
    depends on values, which torch.func's vmap does not allow.
    """

    def __init__(self, net: Any, checksum: str | None = None):
        super().__init__()
        self.net, self.checksum = net, checksum

    def forward(self, inputs: Tensor) -> Tensor:
        tokens, predicted = inputs.unbind(1)
        logits = self.logits(tokens)[:, :-1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
        return losses.masked_fill(predicted[:, 1:] == 0, 0).sum(1, keepdim=True)

    def logits(self, tokens: Tensor) -> Tensor:
        """Of the token after each [B, T, K], by tokens [B, T] up to it."""
        (rows, length), dtype = tokens.shape, next(self.net.parameters()).dtype
        later = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        mask = torch.zeros_like(later, dtype=dtype).masked_fill(later, torch.finfo(dtype).min)
        # One row per example: a look-up shared by the batch would have no per-example gradient.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        with attention(tokens.device):
            return self.net(
                tokens, attention_mask=mask.expand(rows, 1, -1, -1), position_ids=positions
            ).logits

    @torch.no_grad()
    def check_mask(self, length: int) -> None:
        """UserError for a network with which a token depends on later ones."""
        tokens = torch.arange(min(length, 8)).unsqueeze(0) % self.net.config.vocab_size
        with in_mode(self, training=False):
            expected = self.net(tokens, attention_mask=torch.ones_like(tokens)).logits
            try:
                ours, alone = self.logits(tokens), self.logits(tokens[:, :-1])
            except (RuntimeError, TypeError, ValueError):  # such a mask has another shape there
                ours = alone = torch.full_like(expected, torch.nan)
        pairs = (ours, expected), (ours[:, :-1], alone)
        if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs):
            raise UserError(
                f"a network of the kind {self.net.config.model_type} masks later tokens in a way "
                "of its own: use one that is built like GPT-2."
            )
