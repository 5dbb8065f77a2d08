"""What compress.py's flags ask for: which parts are quantized how, and what the model is called then."""

from __future__ import annotations

from typing import Literal

from common.errors import UserError
from common.training.models import ModelConfig
from compression.settings import CompressSettings
from compression.shrinking.quantization.scheme import Scheme

SHORT = {"embedding": "emb", "encoder": "enc", "classifier": "cls"}
"""Parts in models' names."""


def parts_asked_for(settings: CompressSettings, parent: ModelConfig) -> list[str]:
    """Parts to quantize: those the flags name, or all. Raises UserError when there is nothing in them."""
    asked = {
        "embedding": settings.ptq_embedding,
        "encoder": settings.dq_encoder,
        "classifier": settings.dq_classifier or settings.ptq_classifier,
    }
    parts = [part for part, wanted in asked.items() if wanted or not any(asked.values())]
    if parent.arch == "ffn" and "encoder" in parts:
        parts.remove("encoder")  # a mean has no weights
    if not parts:
        raise UserError(f"{parent.name} has no weights in its encoder, and nothing else was to be quantized")
    return parts


def bits_asked_for(settings: CompressSettings, part: str) -> int | None:
    """Bits that a flag of the part's own gives it."""
    return {
        "embedding": settings.bits_embedding,
        "encoder": settings.bits_encoder,
        "classifier": settings.bits_classifier,
    }[part]


def usual_granularity(settings: CompressSettings) -> Literal["row", "tensor"]:
    """What shares a range where --granularity does not say: at plain 8 bits a row, as in the thesis, else the matrix.

    In a packed file one range with more bits is smaller than many with fewer, and does less harm: codes of a matrix
    whose rows differ in size are unevenly frequent, which entropy coding makes use of; scales only cost.
    """
    own = any(bits_asked_for(settings, part) for part in SHORT)
    chosen = settings.max_bytes is not None or settings.max_loss is not None
    return "row" if settings.quantizer == "affine" and settings.bits == 8 and not own and not chosen else "tensor"


def scheme_asked_for(settings: CompressSettings, part: str) -> Scheme:
    """How a part's matrices are quantized. Raises UserError for what there is no quantizer of."""
    granularity = settings.granularity or usual_granularity(settings)
    if settings.quantizer == "codebook" and granularity == "column":
        raise UserError("--quantizer codebook has centroids for each row or for the whole matrix, not for columns")
    own = bits_asked_for(settings, part)
    if settings.quantizer == "ternary" and own is not None:
        raise UserError(f"--quantizer ternary has three values; --bits-{part} has no meaning for it")
    bits = 2 if settings.quantizer == "ternary" else own or settings.bits
    return Scheme(settings.quantizer, bits, granularity, settings.ranges)


def suffix(settings: CompressSettings) -> str:
    """What quantizing adds to a model's name: +q for 8 bits a row, else what differs from that: +q4, +q3c-t2, +qt."""
    ternary = settings.quantizer == "ternary"
    width = "" if settings.bits == 8 or ternary else str(settings.bits)
    if settings.max_bytes is not None:
        width = f"max{settings.max_bytes}"
    elif settings.max_loss is not None:
        width = f"loss{settings.max_loss:g}"
    kind = {"affine": "", "codebook": "c", "ternary": "t"}[settings.quantizer]
    told = [
        *(f"{short}{bits}" for part, short in SHORT.items() if (bits := bits_asked_for(settings, part))),
        *([settings.granularity] if settings.granularity not in (None, usual_granularity(settings)) else []),
        *(["minmax"] if settings.ranges == "minmax" and not ternary else []),
        *(["pe"] if settings.ptq_embedding else []),
        *(["de"] if settings.dq_encoder else []),
        *(["dc"] if settings.dq_classifier else []),
        *([f"pc{_unless(settings, 'calibration_rows')}"] if settings.ptq_classifier else []),
        *([_tuning(settings)] if settings.tune_epochs else []),
    ]
    return "-".join([f"+q{width}{kind}", *told])


def _tuning(settings: CompressSettings) -> str:
    by_student = "s" if settings.guide == "student" else ""
    rate = _unless(settings, "tune_lr")
    return f"t{settings.tune_epochs}{by_student}{f'-lr{rate}' if rate else ''}"


def _unless(settings: CompressSettings, name: str) -> str:
    """A setting's value, or nothing where it is the default."""
    value = getattr(settings, name)
    return "" if value == CompressSettings.model_fields[name].default else f"{value:g}"
