"""RoBERTas of random weights, whose pieces are byte-level pairs."""

from pathlib import Path

import tiny
import torch
import transformers

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def write_encoder(folder: Path, head: str = "RobertaModel", **given: object) -> Path:
    """A RoBERTa of transformers, with its tokenizer."""
    tiny.write_roberta_tokenizer(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    about = {"vocab_size": len(tokenizer), "pad_token_id": 1, "max_position_embeddings": 98, "type_vocab_size": 1}
    config = transformers.RobertaConfig(**SIZES, **about, initializer_range=0.5, layer_norm_eps=1e-5, **given)
    torch.manual_seed(tiny.SEED)
    getattr(transformers, head)(config).save_pretrained(folder)
    return folder


def write_teacher(folder: Path, pair: bool = False) -> Path:
    """The model folder of a RoBERTa of transformers that classifies texts, or pairs."""
    write_encoder(folder / "huggingface", "RobertaForSequenceClassification", num_labels=2)
    about = {"kind": "teacher", "stage": "teacher", "task": "sst-2", "labels": ("negative", "positive")}
    return tiny.write_manifest(folder, settings={"max_tokens": 96}, pair=pair, arch="roberta", seed=1, **about)
