"""Teachers without a task: pre-trained encoders from Hugging Face, with their masked-language-modelling heads."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch

from common.errors import UserError
from common.teachers.huggingface.teacher import missing_tensors, quiet_transformers, resolve


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
    transformers = quiet_transformers()
    folder, name = resolve(source)
    safely = {"dtype": torch.float32, "use_safetensors": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, loaded = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, **safely)
        has_head = not missing_tensors(model, loaded)
        model = model if has_head else transformers.AutoModel.from_pretrained(folder, **safely)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for bad folders
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"no teacher could be loaded from {source}: {reason}") from error
    if not tokenizer.is_fast:
        raise UserError(f"{source}: its tokenizer has no tokenizer.json, which students need for word pieces")
    return GeneralTeacher(name, model, json.loads(tokenizer.backend_tokenizer.to_str()), has_head)
