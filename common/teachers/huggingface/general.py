"""Teachers without a task: pre-trained encoders from Hugging Face, with their masked-language-modelling heads."""

import dataclasses
import json
from typing import Any

import torch

from common.errors import UserError
from common.teachers.huggingface.teacher import load_pretrained, resolve


@dataclasses.dataclass(frozen=True)
class GeneralTeacher:
    """A pre-trained encoder.

    model: with a masked-language-modelling head where `has_head`, else without any; tokenizer: contents of
    tokenizer.json.
    """

    name: str
    model: Any
    tokenizer: dict[str, Any]
    has_head: bool


def load_general(source: str) -> GeneralTeacher:
    """Return minilm, a folder or a model of the hub, in float32. Raises UserError where it cannot be loaded."""
    folder, name = resolve(source)
    safely = {"dtype": torch.float32, "use_safetensors": True}
    tokenizer, model, missing = load_pretrained(folder, "AutoModelForMaskedLM", **safely)
    if missing:
        _, model, _ = load_pretrained(folder, "AutoModel", **safely)
    if not tokenizer.is_fast:
        raise UserError(f"{source}: its tokenizer has no tokenizer.json, which students need for word pieces")
    return GeneralTeacher(name, model, json.loads(tokenizer.backend_tokenizer.to_str()), not missing)
