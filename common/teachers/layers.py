"""Layers of fine-tuned teachers for their students: sizes and tensors.

BERT and RoBERTa (Liu et al., 2019) have the same layers. RoBERTa's positions begin after the padding id, and it has one
segment or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from common.store.files import read_json
from common.teachers.huggingface.pretrained import SUBFOLDER
from common.training.checkpoint import load_tensors
from common.training.models import WEIGHTS_FILE

_SIZES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
"""BERT's names of sizes -> DistilBERT's."""
_TRANSFORM = "cls.predictions.transform"
_HEAD = {
    "lm_head.dense": f"{_TRANSFORM}.dense",
    "lm_head.layer_norm": f"{_TRANSFORM}.LayerNorm",
    "lm_head": "cls.predictions",
}
"""RoBERTa's names in its masked-language-modelling head -> BERT's."""


def layers_config(folder: Path) -> dict[str, Any]:
    """Return the config.json of a teacher in a model folder."""
    return with_usual_names(read_json(folder / SUBFOLDER / "config.json"))


def with_usual_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json of transformers with BERT's names of sizes, which DistilBERT (Sanh et al., 2019) lacks."""
    return {**{usual: config[name] for usual, name in _SIZES.items() if name in config}, **config}


def has_layers(folder: Path) -> bool:
    """Return whether a model folder has the encoder's weights, and not only adapters."""
    return (folder / SUBFOLDER / WEIGHTS_FILE).exists()


def layer_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a teacher in a model folder, with BERT's names; see `as_bert`."""
    return as_bert(load_tensors(folder / SUBFOLDER / WEIGHTS_FILE)[0], layers_config(folder))


def as_bert(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return a BERT's or RoBERTa's tensors with the names of a BertModel and its head, float32 on the CPU.

    Positions that no text uses are left out. config: the teacher's config.json.
    """
    kind = config.get("model_type")
    renamed = {name.removeprefix(f"{kind}."): tensor.float().cpu() for name, tensor in tensors.items()}
    if kind == "roberta":
        parts = {name: name.rpartition(".") for name in renamed}
        renamed = {f"{_HEAD.get(module, module)}.{part}": renamed[name] for name, (module, _, part) in parts.items()}
        positions = "embeddings.position_embeddings.weight"
        renamed[positions] = renamed[positions][config["pad_token_id"] + 1 :]
    return renamed
