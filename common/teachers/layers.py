"""Layers of fine-tuned teachers for their students: sizes, tensors and a module, whichever library trained them.

BERT and RoBERTa (Liu et al., 2019) have the same layers. RoBERTa's positions begin after the padding id, and it has one
segment or none. fairseq's encoder is converted to an equivalent one of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from common.config import build
from common.errors import UserError
from common.store.files import read_json
from common.teachers.fairseq.checkpoint import ARCHITECTURE_FILE, Architecture, read_folder
from common.teachers.fairseq.sources import SUBFOLDER as FAIRSEQ
from common.teachers.fairseq.tokens import PAD
from common.teachers.huggingface.classes import load_teacher_of_any
from common.teachers.huggingface.pretrained import SUBFOLDER as HUGGING_FACE
from common.teachers.huggingface.pretrained import quiet_transformers
from common.training.checkpoint import load_tensors
from common.training.models import WEIGHTS_FILE

_SIZES = {
    "hidden_size": ("encoder_embed_dim", "dim"),
    "num_attention_heads": ("encoder_attention_heads", "n_heads"),
    "num_hidden_layers": ("encoder_layers", "n_layers"),
    "intermediate_size": ("encoder_ffn_embed_dim", "hidden_dim"),
    "hidden_act": ("activation_fn", "activation"),
}
"""BERT's names of sizes -> fairseq's and DistilBERT's."""
_FAIRSEQ_EMBEDDINGS = {
    "embed_tokens": "word_embeddings",
    "embed_positions": "position_embeddings",
    "layernorm_embedding": "LayerNorm",
}
_FAIRSEQ_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
_NORM_EPS = 1e-5
"""Epsilon of fairseq's layer norms, PyTorch's default."""
_TRANSFORM = "cls.predictions.transform"
_HEAD = {
    "lm_head.dense": f"{_TRANSFORM}.dense",
    "lm_head.layer_norm": f"{_TRANSFORM}.LayerNorm",
    "lm_head": "cls.predictions",
}
"""RoBERTa's names in its masked-language-modelling head -> BERT's."""


def layers_config(folder: Path) -> dict[str, Any]:
    """Return the config.json of a teacher in a model folder, or the same settings of a fairseq teacher.

    Raises UserError if fairseq's layers differ from RoBERTa's.
    """
    if not (folder / FAIRSEQ).is_dir():
        return with_usual_names(read_json(folder / HUGGING_FACE / "config.json"))
    architecture = build(Architecture, read_json(folder / FAIRSEQ / ARCHITECTURE_FILE))
    if architecture.encoder_normalize_before or not architecture.layernorm_embedding:
        raise UserError(
            f"{folder.name}: its layers do not have BERT's structure, in which normalisation comes after each part"
        )
    if architecture.activation_fn != "gelu":
        raise UserError(f"{folder.name}: its activation is {architecture.activation_fn}, a student's is gelu")
    sizes = {usual: getattr(architecture, name) for usual, (name, _) in _SIZES.items()}
    more = {"max_position_embeddings": architecture.max_positions + PAD + 1, "type_vocab_size": 1}
    return {"model_type": "roberta", "pad_token_id": PAD, "layer_norm_eps": _NORM_EPS, **sizes, **more}


def with_usual_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json of transformers with BERT's names of sizes, which DistilBERT (Sanh et al., 2019) lacks."""
    return {**{usual: config[name] for usual, (_, name) in _SIZES.items() if name in config}, **config}


def has_layers(folder: Path) -> bool:
    """Return whether a model folder has the encoder's weights, and not only adapters."""
    return any((folder / kind / WEIGHTS_FILE).exists() for kind in (FAIRSEQ, HUGGING_FACE))


def layer_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a teacher in a model folder, with BERT's names; see `as_bert`."""
    config = layers_config(folder)
    if (folder / FAIRSEQ).is_dir():
        return as_bert(_fairseq_tensors(folder / FAIRSEQ), config)
    return as_bert(load_tensors(folder / HUGGING_FACE / WEIGHTS_FILE)[0], config)


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


def load_encoder(folder: Path, device: torch.device) -> Any:
    """Return a teacher as a transformers model, float32, with its head; a fairseq teacher without it.

    Raises UserError when something is missing or damaged.
    """
    if not (folder / FAIRSEQ).is_dir():
        return load_teacher_of_any(folder, device, torch.float32).model
    transformers, tensors = quiet_transformers(), _fairseq_tensors(folder / FAIRSEQ)
    words = len(tensors["embeddings.word_embeddings.weight"])
    config = transformers.RobertaConfig(vocab_size=words, **layers_config(folder))
    model = transformers.RobertaModel(config, add_pooling_layer=False)
    expected = model.state_dict()
    wrong = [name for name in expected if name not in tensors or tensors[name].shape != expected[name].shape]
    if wrong:
        raise UserError(f"{folder.name}: {wrong[0]} is missing, or has another shape than {ARCHITECTURE_FILE} says")
    model.load_state_dict({name: tensors[name] for name in expected})
    return model.to(device)


def _fairseq_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of fairseq's encoder with the names of transformers' RobertaModel."""
    _, tensors = read_folder(folder)
    renamed = {}
    for name, tensor in tensors.items():
        module, _, kind = name.removeprefix("encoder.sentence_encoder.").rpartition(".")
        if module in _FAIRSEQ_EMBEDDINGS:
            renamed[f"embeddings.{_FAIRSEQ_EMBEDDINGS[module]}.{kind}"] = tensor
        elif module.startswith("layers."):
            _, number, module = module.split(".", 2)
            if module in _FAIRSEQ_LAYER:
                renamed[f"encoder.layer.{number}.{_FAIRSEQ_LAYER[module]}.{kind}"] = tensor
    width = renamed["embeddings.word_embeddings.weight"].shape[1]
    return {**renamed, "embeddings.token_type_embeddings.weight": torch.zeros(1, width)}
