"""Trained adapters as files that the library peft loads."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from dpbench.learning.models.lora import Adapted
from dpbench.system.errors import UserError

PREFIX = "base_model.model."
"""What peft puts before the names of parameters."""


def save_adapter(model: nn.Module, folder: str | Path) -> None:
    """Write the adapters and the head of a model that was trained with `model.train=lora` as
    adapter_config.json and adapter_model.safetensors, which `PeftModel.from_pretrained` adds to a
    network with the same published weights and classes; UserError for a model without adapters."""
    net: Any = getattr(model, "net", model)
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    place = Path(folder)
    adapted = {name: m for name, m in net.named_modules() if isinstance(m, Adapted)}
    if not adapted:
        raise UserError("this model has no adapters: train one with model.train=lora.")
    one = next(iter(adapted.values()))
    config = {  # in the names of peft
        "peft_type": "LORA",
        "r": one.rank,
        "lora_alpha": one.scale * one.rank,
        "target_modules": [*adapted],
        "modules_to_save": sorted({n.rpartition(".")[0] for n in trained if ".lora_" not in n}),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    place.mkdir(parents=True, exist_ok=True)
    tensors = {PREFIX + name: p.detach().contiguous() for name, p in trained.items()}
    save_file(tensors, place / "adapter_model.safetensors")
    (place / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
