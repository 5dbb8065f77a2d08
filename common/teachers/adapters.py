"""Adapter tuning: an encoder stays as it is; a bottleneck after each part of its layers, and the head, learn.

Houlsby et al. (2019), section 2; MiniALBERT's equations 3 and 4. What was trained is saved apart from the encoder, a
few MB, and put into the very same encoder when it is loaded. The encoder's own tensors keep their names: adapters hang
on the outputs of its parts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.errors import UserError
from common.training.checkpoint import load_tensors, save_tensors

_PARTS = ("attention.output.dense", "output.dense")
"""What ends a layer's attention and its feed-forward part, in BERT and all that is laid out like it."""


class Bottleneck(nn.Module):
    """x + W_up GELU(W_down x), as good as absent before training."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, bottleneck), nn.Linear(bottleneck, width)
        nn.init.normal_(self.up.weight, std=1e-3)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[..., width] -> the same."""
        return states + self.up(nn.functional.gelu(self.down(states)))


def insert(model: Any, bottleneck: int) -> None:
    """Put adapters into a transformers model, in place, and freeze all but them and its head.

    Raises UserError where its layers are not laid out as BERT's.
    """
    parts = [part for name, part in model.named_modules() if name.endswith(_PARTS) and ".layer." in name]
    if not parts:
        raise UserError(f"--adapters: the layers of a {model.config.model_type} are not like BERT's")
    model.adapters = nn.ModuleList(Bottleneck(part.out_features, bottleneck) for part in parts)
    for part, adapter in zip(parts, model.adapters, strict=True):
        part.register_forward_hook(lambda _part, _inputs, output, adapter=adapter: adapter(output))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_trained(model, name))


def base_of(arch: str) -> str:
    """An --arch in a way that means the same from any folder."""
    return str(Path(arch).absolute()) if Path(arch).is_dir() else arch


def save_adapters(model: Any, file: Path, base: str) -> None:
    """Write adapters and head, and which encoder they are for. base: what `resolve` takes, such as minilm."""
    trained = {name: tensor for name, tensor in model.state_dict().items() if _is_trained(model, name)}
    width = model.adapters[0].down.out_features
    save_tensors(file, trained, {"base": base, "base_weights": _digest(model), "adapters": width})


def read_base(file: Path) -> str:
    """What encoder a file of `save_adapters` is for. Raises UserError when it does not say."""
    _, told = load_tensors(file)
    if not isinstance(told.get("base"), str) or not isinstance(told.get("adapters"), int):
        raise UserError(f"{file}: does not say what model its adapters are for")
    return told["base"]


def load_adapters(model: Any, file: Path) -> None:
    """Put the adapters of a file into the encoder they are for, in place. Raises UserError for any other encoder."""
    tensors, told = load_tensors(file)
    insert(model, int(told["adapters"]))
    if told.get("base_weights") != _digest(model):
        raise UserError(f"{file}: adapters of another model than the {told['base']} that is here")
    known = {name: tensor.shape for name, tensor in model.state_dict().items() if _is_trained(model, name)}
    if {name: tensor.shape for name, tensor in tensors.items()} != known:
        raise UserError(f"{file}: its adapters do not fit {told['base']}")
    model.load_state_dict(tensors, strict=False)


def _is_trained(model: Any, name: str) -> bool:
    """Whether a parameter belongs to the adapters or the head, and not to the encoder."""
    return not name.startswith(f"{model.base_model_prefix}.")


def _digest(model: Any) -> str:
    """SHA-256 of the encoder's own tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not _is_trained(model, name):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
