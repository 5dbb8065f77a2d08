"""The `quantize` action: chooses the parts and their bits by compress.py's flags, and quantizes them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from common.errors import UserError
from common.progress import say
from common.training.models import ModelConfig
from compression.shrinking.choices import QUANTIZERS
from compression.shrinking.quantization.budget import frontier, options_of, within_bytes, within_loss
from compression.shrinking.quantization.builder import StudentBuilder
from compression.shrinking.quantization.scheme import Scheme
from compression.shrinking.settings import PARTS, CompressSettings, QuantizeSettings, TuneSettings
from compression.shrinking.step import CompressionContext, Shrink

SHORT = {"embedding": "emb", "encoder": "enc", "classifier": "cls"}
"""Part -> its name in a model's name."""


class Quantize(Shrink):
    """Replaces weights by codes of few bits."""

    version: ClassVar[int] = 4
    stage, named = "quantized", (*QuantizeSettings.model_fields, *TuneSettings.model_fields)

    quantize: QuantizeSettings

    @classmethod
    def label(cls, settings: CompressSettings) -> str:
        """Return +q for 8 bits with a range for each row; other settings are added: +q4, +q3c-t2, +qt."""
        quantizer = QUANTIZERS[settings.quantizer]
        bits = "" if settings.bits == 8 or quantizer.values else str(settings.bits)
        if settings.max_bytes is not None:
            bits = f"max{settings.max_bytes}"
        elif settings.max_loss is not None:
            bits = f"loss{settings.max_loss:g}"
        words = [f"+q{bits}{quantizer.suffix}"]
        words += [f"{short}{settings.bits_of(part)}" for part, short in SHORT.items() if settings.bits_of(part)]
        if settings.granularity not in (None, _default_granularity(settings)):
            words.append(settings.granularity)
        if settings.ranges == "minmax" and "ranges" in quantizer.settings:
            words.append("minmax")
        flags = {"pe": settings.ptq_embedding, "de": settings.dq_encoder, "dc": settings.dq_classifier}
        words += [word for word, flag in flags.items() if flag]
        if settings.ptq_classifier:
            words.append(f"pc{_unless_default(settings, 'calibration_rows')}")
        if settings.tune_epochs:
            words.append(f"t{settings.tune_epochs}{'s' if settings.guide == 'student' else ''}")
            rate = _unless_default(settings, "tune_lr")
            if rate:
                words.append(f"lr{rate}")
            if settings.rounding == "stochastic":
                words.append("stochastic")
        return "-".join(words)

    def reads(self) -> set[str]:
        """Return "train" if inputs are calibrated, and "held out" too if bits are chosen."""
        if self.quantize.chooses_bits:
            return {"train", "held out"}
        return {"train"} if self.quantize.ptq_classifier else set()

    def apply(self, context: CompressionContext) -> dict[str, Any]:
        """Quantize a student. Returns the scheme of each matrix, the average bits, and how inputs are rounded.

        Raises UserError if it is quantized already, or if --max-bytes or --max-loss cannot be met.
        """
        how, parent = self.quantize, context.parent
        if parent.stage == "quantized":
            raise UserError(f"{parent.name} is quantized already")
        parts = quantized_parts(how, parent)
        inputs = {}  # part -> ranges by which its inputs are rounded
        if how.dq_encoder and "encoder" in parts:
            inputs["encoder"] = "dynamic"
        if how.dq_classifier or how.ptq_classifier:
            inputs["classifier"] = "dynamic" if how.dq_classifier else "static"
        builder = StudentBuilder(context, parts, inputs, how)
        setting = {name: scheme_of(how, name.split(".")[0]) for name in builder.weights}
        if how.chooses_bits:
            options = options_of(context, builder, setting, [part for part in parts if how.bits_of(part)])
            if how.max_bytes is not None:
                setting = within_bytes(context, builder, options, how.max_bytes)
            elif how.max_loss is not None:
                setting = within_loss(context, builder, frontier(options), how.max_loss)
        else:
            builder.build(setting, tune=True)
        bits = builder.average_bits(setting)
        say(f"{context.name}: {bits:g} bits a weight")
        quantized = {
            name: {"quantizer": scheme.quantizer, "bits": scheme.bits, "granularity": scheme.granularity}
            for name, scheme in setting.items()
        }
        return {"quantized": quantized, "bits": bits, "inputs": inputs}


def quantized_parts(settings: QuantizeSettings, parent: ModelConfig) -> list[str]:
    """Return the parts to quantize: those of the thesis's flags, or all. Raises UserError when they have no weights."""
    chosen = settings.ptq_embedding, settings.dq_encoder, settings.dq_classifier or settings.ptq_classifier
    parts = [part for part, flag in zip(PARTS, chosen, strict=True) if flag or not any(chosen)]
    if parent.arch == "ffn" and "encoder" in parts:
        parts.remove("encoder")  # a mean has no weights
    if not parts:
        raise UserError(f"{parent.name} has no encoder weights to quantize")
    return parts


def scheme_of(settings: QuantizeSettings, part: str) -> Scheme:
    """Return how a part's matrices are quantized."""
    values = QUANTIZERS[settings.quantizer].values
    bits = settings.bits_of(part) or settings.bits
    if values:
        bits = math.ceil(math.log2(values))
    granularity = settings.granularity or _default_granularity(settings)
    if granularity == "thesis":
        granularity = "row" if part == "embedding" else "tensor"
    return Scheme(settings.quantizer, bits, granularity, settings.ranges)


def _default_granularity(settings: QuantizeSettings) -> str:
    """Return the default of --granularity: a row at plain 8 bits, else the whole matrix.

    In a packed file, one range with more bits is smaller than many with fewer, and distorts less: if a matrix's rows
    differ in magnitude, some codes are much more frequent than others, which entropy coding exploits, while scales only
    add bytes.
    """
    plain = settings.bits == 8 and not any(map(settings.bits_of, PARTS)) and not settings.chooses_bits
    return "row" if QUANTIZERS[settings.quantizer].thesis and plain else "tensor"


def _unless_default(settings: CompressSettings, name: str) -> str:
    """Return a setting's value, or an empty string if it is the default."""
    value = getattr(settings, name)
    return "" if value == CompressSettings.model_fields[name].default else f"{value:g}"
