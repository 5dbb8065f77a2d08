"""Conversion of fairseq's RoBERTa to that of transformers, with the same ids of pieces and the same logits."""

from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.store.files import read_json
from common.teachers.fairseq.checkpoint import Architecture, load_into
from common.teachers.fairseq.sources import DICTIONARY_FILE, byte_pairs
from common.teachers.huggingface.pretrained import quiet_transformers

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
"""First pieces of fairseq's dictionaries; the files omit them, and also <mask>, the last piece."""
PAD, UNKNOWN = 1, 3
"""Ids of <pad> and <unk>."""
_ACTIVATIONS = {"gelu": "gelu", "gelu_accurate": "gelu_new", "relu": "relu", "tanh": "tanh"}
"""fairseq's activations -> transformers'."""
_WORDS, _OUTPUT = "encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight"
_NORM_EPS = 1e-5
"""Epsilon of fairseq's layer norms, PyTorch's default."""
_NEVER = -1e4
"""Bias, in the masked-language-modelling head, of pieces that fairseq's dictionary lacks."""
_NAMES = {
    "encoder.sentence_encoder.layers.": "roberta.encoder.layer.",
    "encoder.sentence_encoder.": "roberta.embeddings.",
    "embed_tokens.": "word_embeddings.",
    "embed_positions.": "position_embeddings.",
    "layernorm_embedding.": "LayerNorm.",
    "self_attn.q_proj.": "attention.self.query.",
    "self_attn.k_proj.": "attention.self.key.",
    "self_attn.v_proj.": "attention.self.value.",
    "self_attn.out_proj.": "attention.output.dense.",
    "self_attn_layer_norm.": "attention.output.LayerNorm.",
    "fc1.": "intermediate.dense.",
    "fc2.": "output.dense.",
    "final_layer_norm.": "output.LayerNorm.",
    "classification_heads.sentence_classification_head.": "classifier.",
    "encoder.lm_head.": "lm_head.",
}
"""Parts of fairseq's names -> transformers', replaced in this order."""


def tokenizer_of(folder: Path, downloads: Path, max_positions: int, prefix: bool = False) -> Any:
    """Return transformers' tokenizer for a folder with dict.txt. downloads: see `byte_pairs`.

    Ids of pieces are those of fairseq's dictionary; pieces that it lacks have ids after its last. As fairseq's, it
    reads <s> in a text as three signs. prefix: put a space in front of a text. Raises UserError for a damaged file.
    """
    pairs = byte_pairs(folder, downloads)
    symbols = [*SPECIAL, *(line.rsplit(" ", 1)[0] for line in _lines(folder / DICTIONARY_FILE)), "<mask>"]
    merges = [tuple(line.split(" ")) for line in _lines(pairs / "vocab.bpe") if not line.startswith("#version")]
    try:
        # The dictionary names pieces by the decimal digits of their ids in encoder.json.
        pieces = {str(number): piece for piece, number in read_json(pairs / "encoder.json").items()}
        present = [pieces.pop(symbol, symbol) for symbol in symbols]
        rows = {piece: row for row, piece in enumerate([*present, *pieces.values()])}
        return quiet_transformers().RobertaTokenizer(
            vocab=rows,
            merges=merges,
            add_prefix_space=prefix,
            model_max_length=max_positions,
            split_special_tokens=True,
        )
    except Exception as error:  # tokenizers raises plain Exceptions
        raise UserError(f"{folder}: damaged vocabulary ({error})") from error


def _lines(file: Path) -> list[str]:
    """Return the lines of a vocabulary file that are not empty. Raises UserError when it is missing or not UTF-8."""
    try:
        return [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip("\r ")]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: missing or damaged ({error})") from None


def converted(
    architecture: Architecture, tensors: dict[str, torch.Tensor], tokenizer: Any, source: Path, **head: Any
) -> Any:
    """Return transformers' model of a RoBERTa, float32 on the CPU, in evaluation mode.

    tokenizer: as `tokenizer_of` returns it; head: settings in config.json of the classification head, such as
    num_labels; without any, the model has the masked-language-modelling head instead. Raises UserError that names
    `source` if tensors are missing or have another shape.
    """
    if not head and architecture.activation_fn != "gelu":
        raise UserError(f"{source}: its activation is {architecture.activation_fn}, a masked language model's is gelu")
    transformers, none = quiet_transformers(), torch.empty(0)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=architecture.encoder_embed_dim,
        num_hidden_layers=architecture.encoder_layers,
        num_attention_heads=architecture.encoder_attention_heads,
        intermediate_size=architecture.encoder_ffn_embed_dim,
        hidden_act=_ACTIVATIONS[architecture.activation_fn],
        max_position_embeddings=architecture.max_positions + PAD + 1,
        type_vocab_size=1,
        layer_norm_eps=_NORM_EPS,
        tie_word_embeddings=torch.equal(tensors.get(_OUTPUT, none), tensors.get(_WORDS, none)),
        **head,
    )
    model = (transformers.RobertaForSequenceClassification if head else transformers.RobertaForMaskedLM)(config)
    renamed = _renamed(tensors, len(tokenizer) - tokenizer.mask_token_id - 1)
    segments = {"roberta.embeddings.token_type_embeddings.weight": torch.zeros(1, architecture.encoder_embed_dim)}
    load_into(model, {**renamed, **segments}, ("lm_head",) if head else ("classifier",), source)
    return model.eval()


def _renamed(tensors: dict[str, torch.Tensor], lacking: int) -> dict[str, torch.Tensor]:
    """Return tensors with transformers' names. lacking: number of pieces without a row; they get copies of <unk>'s."""
    renamed = {}
    for name, tensor in tensors.items():
        if name in (_WORDS, _OUTPUT):
            tensor = torch.cat([tensor, tensor[UNKNOWN].expand(lacking, -1)])
        elif name == "encoder.lm_head.bias":
            tensor = torch.cat([tensor, tensor.new_full((lacking,), _NEVER)])
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        if not name.endswith(".version"):
            renamed[name] = tensor
    if "lm_head.weight" in renamed:
        renamed["lm_head.decoder.weight"] = renamed.pop("lm_head.weight")
        renamed["lm_head.decoder.bias"] = renamed["lm_head.bias"]
    return renamed
