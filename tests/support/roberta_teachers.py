"""Teachers of byte-level pairs with random weights: RoBERTas of transformers and of fairseq."""

import json
from pathlib import Path

import small_roberta
import tiny
import torch
import transformers

from common.teachers.fairseq.checkpoint import Architecture, write_folder

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def write_encoder(folder: Path, head: str = "RobertaModel", **given: object) -> Path:
    """A RoBERTa of transformers, with its tokenizer."""
    tiny.write_roberta_tokenizer(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    about = {"vocab_size": len(tokenizer), "pad_token_id": 1, "max_position_embeddings": 98, "type_vocab_size": 1}
    config = transformers.RobertaConfig(**SIZES, **about, initializer_range=0.5, layer_norm_eps=1e-12, **given)
    torch.manual_seed(tiny.SEED)
    getattr(transformers, head)(config).save_pretrained(folder)
    return folder


def write_teacher(folder: Path, pair: bool = False) -> Path:
    """The model folder of a RoBERTa of transformers that classifies texts, or pairs."""
    write_encoder(folder / "huggingface", "RobertaForSequenceClassification", num_labels=2)
    return _with_manifest(folder, pair)


def write_fairseq_teacher(folder: Path, pair: bool = False) -> Path:
    """The model folder of a RoBERTa of fairseq that classifies texts, or pairs."""
    own = folder / "fairseq"
    own.mkdir(parents=True)
    small_roberta.learn_vocabulary(own)
    words = 4 + len((own / "dict.txt").read_text().splitlines()) + 1
    architecture = Architecture(
        encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=32, encoder_attention_heads=2, max_positions=96
    )
    torch.manual_seed(tiny.SEED)
    start = "encoder.sentence_encoder."
    linear = {"self_attn.q_proj": (16, 16), "self_attn.k_proj": (16, 16), "self_attn.v_proj": (16, 16)}
    linear |= {"self_attn.out_proj": (16, 16), "fc1": (32, 16), "fc2": (16, 32)}
    tensors = {f"{start}embed_tokens.weight": torch.randn(words, 16)}
    tensors |= {f"{start}embed_positions.weight": torch.randn(98, 16)}
    norms = [f"{start}layernorm_embedding"]
    for number in range(2):
        layer = f"{start}layers.{number}."
        tensors |= {f"{layer}{name}.weight": 0.5 * torch.randn(shape) for name, shape in linear.items()}
        tensors |= {f"{layer}{name}.bias": torch.randn(shape[0]) for name, shape in linear.items()}
        norms += [f"{layer}self_attn_layer_norm", f"{layer}final_layer_norm"]
    for norm in norms:
        tensors |= {f"{norm}.weight": torch.rand(16) + 0.5, f"{norm}.bias": torch.randn(16)}
    head = "classification_heads.sentence_classification_head."
    tensors |= {f"{head}dense.weight": torch.randn(16, 16), f"{head}dense.bias": torch.randn(16)}
    tensors |= {f"{head}out_proj.weight": torch.randn(2, 16), f"{head}out_proj.bias": torch.randn(2)}
    write_folder(own, architecture, tensors)
    return _with_manifest(folder, pair)


def edit_json(file: Path, **changes: object) -> None:
    """Change the top level of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _with_manifest(folder: Path, pair: bool) -> Path:
    about = {"kind": "teacher", "stage": "teacher", "task": "sst-2", "labels": ("negative", "positive")}
    return tiny.write_manifest(folder, settings={"max_tokens": 96}, pair=pair, arch="roberta", seed=1, **about)
