"""Adapter tuning: the encoder is frozen; a bottleneck after each block of its layers, and the head, are trained.

Houlsby et al. (2019), section 2; MiniALBERT's equations 3 and 4. The trained tensors, a few MB, are saved apart from
the encoder and inserted into the same encoder when they are loaded. The encoder's tensors keep their names:
adapters are forward hooks.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.errors import UserError
from common.teachers.huggingface.pretrained import in_encoder
from common.training.checkpoint import load_tensors, save_tensors

_BLOCK_ENDS = ("attention.output.dense", "output.dense")
"""The last modules of a layer's attention and feed-forward blocks, in BERT and models like it."""


class Bottleneck(nn.Module):
    """x + W_up GELU(W_down x), almost the identity before training."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, bottleneck), nn.Linear(bottleneck, width)
        nn.init.normal_(self.up.weight, std=1e-3)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return states of the same shape, [..., width]."""
        return states + self.up(nn.functional.gelu(self.down(states)))


def insert(model: Any, bottleneck: int) -> None:
    """Insert adapters into a transformers model, in place, and freeze all other parameters but its head's.

    Raises UserError if its layers are not like BERT's.
    """
    modules = [module for name, module in model.named_modules() if name.endswith(_BLOCK_ENDS) and ".layer." in name]
    if not modules:
        raise UserError(f"--adapters: the layers of a {model.config.model_type} do not have BERT's structure")
    model.adapters = nn.ModuleList(Bottleneck(module.out_features, bottleneck) for module in modules)
    for module, adapter in zip(modules, model.adapters, strict=True):
        module.register_forward_hook(lambda _module, _inputs, output, adapter=adapter: adapter(output))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not in_encoder(model, name))


def save_adapters(model: Any, file: Path, base: str) -> None:
    """Write adapters, head and the name of their encoder. base: the encoder's --arch, such as minilm."""
    trained = {name: tensor for name, tensor in model.state_dict().items() if not in_encoder(model, name)}
    width = model.adapters[0].down.out_features
    save_tensors(file, trained, {"base": base, "base_weights": _digest(model), "adapters": width})


def read_base(file: Path) -> str:
    """Return the --arch of the encoder that a file of `save_adapters` is for. Raises UserError if it names none."""
    _, metadata = load_tensors(file)
    if not isinstance(metadata.get("base"), str) or not isinstance(metadata.get("adapters"), int):
        raise UserError(f"{file}: does not name the model its adapters are for")
    return metadata["base"]


def load_adapters(model: Any, file: Path) -> None:
    """Insert the adapters of a file into their encoder, in place. Raises UserError if they are for another one."""
    tensors, metadata = load_tensors(file)
    insert(model, int(metadata["adapters"]))
    if metadata.get("base_weights") != _digest(model):
        raise UserError(f"{file}: its adapters are for another version of {metadata['base']}; fine-tune again")
    known = {name: tensor.shape for name, tensor in model.state_dict().items() if not in_encoder(model, name)}
    if {name: tensor.shape for name, tensor in tensors.items()} != known:
        raise UserError(f"{file}: its adapters do not fit {metadata['base']}")
    model.load_state_dict(tensors, strict=False)


def _digest(model: Any) -> str:
    """Return the SHA-256 of the encoder's own tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if in_encoder(model, name):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
