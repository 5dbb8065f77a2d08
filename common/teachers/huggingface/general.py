"""Teachers that are fine-tuned for nothing: an encoder of Hugging Face's, with its masked-language-modelling head."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch

from common.errors import UserError
from common.teachers.huggingface.teacher import quiet_transformers, resolve, untrained


@dataclasses.dataclass(frozen=True)
class GeneralTeacher:
    """An encoder as it was pre-trained.

    model: with a masked-language-modelling head where `has_head`, else without any; tokenizer: what tokenizer.json
    holds.
    """

    name: str
    model: Any
    tokenizer: dict[str, Any]
    has_head: bool


def load_general(source: str) -> GeneralTeacher:
    """Load minilm, a folder or a model of the hub, in float32. Raises UserError when there is none, or no tokenizer."""
    transformers = quiet_transformers()
    place, name = resolve(source)
    safely = {"dtype": torch.float32, "use_safetensors": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        model, loaded = transformers.AutoModelForMaskedLM.from_pretrained(place, output_loading_info=True, **safely)
        has_head = not untrained(model, loaded)
        model = model if has_head else transformers.AutoModel.from_pretrained(place, **safely)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for bad folders
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"no teacher could be loaded from {source}: {reason}") from error
    if not tokenizer.is_fast:
        raise UserError(f"{source}: its tokenizer has no tokenizer.json, of which students could take word pieces")
    return GeneralTeacher(name, model, json.loads(tokenizer.backend_tokenizer.to_str()), has_head)
