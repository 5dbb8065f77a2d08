"""Teachers without a task: pre-trained encoders from Hugging Face, with their masked-language-modelling heads."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.teachers.huggingface.pretrained import check_complete, load_pretrained, resolve


@dataclasses.dataclass(frozen=True)
class GeneralTeacher:
    """A pre-trained encoder.

    model: with a masked-language-modelling head if `has_head`, else without a head; tokenizer: contents of
    tokenizer.json.
    """

    name: str
    model: Any
    tokenizer: dict[str, Any]
    has_head: bool


def load_general(source: str, downloads: Path | None = None) -> GeneralTeacher:
    """Return minilm, mpnet, a folder or a model of the hub, in float32. downloads: folder to unpack mpnet in.

    Raises UserError if it cannot be loaded.
    """
    folder, name = resolve(source, downloads)
    tokenizer, model, missing = load_pretrained(folder, "AutoModelForMaskedLM")
    if missing:
        _, model, new = load_pretrained(folder, "AutoModel")
        check_complete(source, model, new)
    if not tokenizer.is_fast:
        raise UserError(f"{source}: its tokenizer has no tokenizer.json, which students need for word pieces")
    return GeneralTeacher(name, model, json.loads(tokenizer.backend_tokenizer.to_str()), not missing)
