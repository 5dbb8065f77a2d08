"""The `quantize` action: which parts become codes of how many bits, by compress.py's flags, and doing it."""

from __future__ import annotations

from typing import Any

from common.errors import UserError
from common.progress import say
from common.training.models import ModelConfig
from compression.shrinking.context import CompressionContext
from compression.shrinking.quantization.budget import settings_of, within_bytes, within_loss
from compression.shrinking.quantization.builder import StudentBuilder
from compression.shrinking.quantization.scheme import Scheme
from compression.shrinking.settings import CompressSettings

SHORT = {"embedding": "emb", "encoder": "enc", "classifier": "cls"}
"""Part -> its name in a model's name."""


def suffix(settings: CompressSettings) -> str:
    """Return what quantizing adds to a model's name: +q for 8 bits a row, else the differences: +q4, +q3c-t2, +qt."""
    ternary = settings.quantizer == "ternary"
    bits = "" if settings.bits == 8 or ternary else str(settings.bits)
    if settings.max_bytes is not None:
        bits = f"max{settings.max_bytes}"
    elif settings.max_loss is not None:
        bits = f"loss{settings.max_loss:g}"
    words = [f"+q{bits}{ {'affine': '', 'codebook': 'c', 'ternary': 't'}[settings.quantizer] }"]
    words += [f"{short}{own}" for part, short in SHORT.items() if (own := _own_bits(settings, part))]
    if settings.granularity not in (None, _default_granularity(settings)):
        words.append(settings.granularity)
    if settings.ranges == "minmax" and not ternary:
        words.append("minmax")
    words += [
        word
        for word, flag in {"pe": "ptq_embedding", "de": "dq_encoder", "dc": "dq_classifier"}.items()
        if getattr(settings, flag)
    ]
    if settings.ptq_classifier:
        words.append(f"pc{_unless_default(settings, 'calibration_rows')}")
    if settings.tune_epochs:
        words.append(f"t{settings.tune_epochs}{'s' if settings.guide == 'student' else ''}")
        if rate := _unless_default(settings, "tune_lr"):
            words.append(f"lr{rate}")
    return "-".join(words)


def _unless_default(settings: CompressSettings, name: str) -> str:
    """Return a setting's value, or nothing when it is the default."""
    value = getattr(settings, name)
    return "" if value == CompressSettings.model_fields[name].default else f"{value:g}"


def apply(context: CompressionContext) -> dict[str, Any]:
    """Quantize the student. Return how, for its config.

    Raises UserError when it is quantized already, and when --max-bytes or --max-loss cannot be met.
    """
    settings, parent = context.settings, context.parent
    if parent.stage == "quantized":
        raise UserError(f"{parent.name} is quantized already")
    parts = quantized_parts(settings, parent)
    inputs = {part: how for part, how in _rounded_inputs(settings).items() if part in parts}
    builder = StudentBuilder(context, parts, inputs)
    setting = {name: scheme_of(settings, name.split(".")[0]) for name in builder.weights}
    if settings.max_bytes is None and settings.max_loss is None:
        builder.build(setting, tune=True)
    else:
        points = settings_of(context, builder, setting, [part for part in parts if _own_bits(settings, part)])
        if settings.max_bytes is not None:
            setting = within_bytes(context, builder, points, settings.max_bytes)
        elif settings.max_loss is not None:
            setting = within_loss(context, builder, points, settings.max_loss)
    bits = builder.average_bits(setting)
    say(f"{context.name}: {bits:g} bits a weight")
    quantized = {
        name: {"quantizer": scheme.quantizer, "bits": scheme.bits, "granularity": scheme.granularity}
        for name, scheme in setting.items()
    }
    return {"quantized": quantized, "bits": bits, "inputs": inputs}


def quantized_parts(settings: CompressSettings, parent: ModelConfig) -> list[str]:
    """Return the parts to quantize: those of the thesis's flags, or all. Raises UserError when they have no weights."""
    flags = {
        "embedding": settings.ptq_embedding,
        "encoder": settings.dq_encoder,
        "classifier": settings.dq_classifier or settings.ptq_classifier,
    }
    parts = [part for part, chosen in flags.items() if chosen or not any(flags.values())]
    if parent.arch == "ffn" and "encoder" in parts:
        parts.remove("encoder")  # a mean has no weights
    if not parts:
        raise UserError(f"{parent.name} has no weights in its encoder, and nothing else was to be quantized")
    return parts


def _rounded_inputs(settings: CompressSettings) -> dict[str, str]:
    """Return the parts whose inputs are rounded to 8 bits by the thesis's flags, and how."""
    flags = {
        ("encoder", "dynamic"): settings.dq_encoder,
        ("classifier", "dynamic"): settings.dq_classifier,
        ("classifier", "static"): settings.ptq_classifier,
    }
    return dict(pair for pair, chosen in flags.items() if chosen)


def scheme_of(settings: CompressSettings, part: str) -> Scheme:
    """Return how a part's matrices are quantized. Raises UserError for flags that contradict each other."""
    granularity = settings.granularity or _default_granularity(settings)
    if settings.quantizer == "codebook" and granularity == "column":
        raise UserError("--quantizer codebook has centroids for each row or for the whole matrix, not for columns")
    own = _own_bits(settings, part)
    if settings.quantizer == "ternary" and own is not None:
        raise UserError(f"--quantizer ternary has three values; --bits-{part} has no meaning for it")
    bits = 2 if settings.quantizer == "ternary" else own or settings.bits
    return Scheme(settings.quantizer, bits, granularity, settings.ranges)


def _own_bits(settings: CompressSettings, part: str) -> int | None:
    return getattr(settings, f"bits_{part}")


def _default_granularity(settings: CompressSettings) -> str:
    """Return what shares a range without --granularity: a row at plain 8 bits, as in the thesis, else the matrix.

    In a packed file one range with more bits is smaller than many with fewer, and distorts less: the codes of a matrix
    whose rows differ in size are unevenly frequent, which entropy coding makes use of; scales only cost.
    """
    own = any(_own_bits(settings, part) for part in SHORT)
    budget = settings.max_bytes is not None or settings.max_loss is not None
    return "row" if settings.quantizer == "affine" and settings.bits == 8 and not own and not budget else "tensor"
