"""Attention maps of a model for one text or pair, drawn next to its teacher's maps (MiniALBERT's figure 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from common.data.split import Split
from common.data.text import normalise
from common.devices import pick_device
from common.errors import UserError
from common.progress import say
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.load import load_teacher
from common.training.models import ModelConfig, read_config
from compression.analysis.pictures import wrapped
from compression.distillation.alignment import mapped_layers
from compression.runtime import TRANSFORMERS
from compression.students.saved import load_student
from compression.students.scoring import encode_split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = 4
"""Number of heads drawn per layer: the first ones."""
MOST_TOKENS = 50
"""Maximum number of tokens for which maps are readable."""


@dataclasses.dataclass(frozen=True)
class AttentionMaps:
    """A model's attention on one text.

    tokens: including special tokens; layers: numbers of the layers, from 1; maps: float32 [layers, heads, tokens,
    tokens], the attention weights of each token (row) to every token (column); rows sum to 1.
    """

    name: str
    tokens: list[str]
    layers: list[int]
    maps: np.ndarray


def attention_maps(folder: Path, config: ModelConfig, texts: Sequence[str], cpu: bool) -> list[AttentionMaps]:
    """Return a model's maps; for a student, preceded by its teacher's if it is in the workspace and has attention.

    texts: one text, or both texts of a pair. The teacher's layers are those of the student's --layer-map. Raises
    UserError for a model without attention, and for a text that is too long.
    """
    if len(texts) != 1 + config.pair:
        reads = "two texts" if config.pair else "one text"
        raise UserError(f"--attention: {config.name} reads {reads}, not {len(texts)}")
    split = Split.of_texts([list(map(normalise, texts))])
    if config.kind != "student":
        return [_of_teacher(folder, config.name, split, cpu)]
    maps = _of_student(folder, config, split, cpu)
    teacher = folder.parent / (config.teacher or "")
    if config.teacher is None:
        return [maps]
    if not (teacher / "huggingface").is_dir():  # an ensemble, linear, imported or deleted
        say(f"{config.teacher}: not shown, only a Hugging Face teacher in the same workspace has attention maps")
        return [maps]
    theirs = _of_teacher(teacher, config.teacher, split, cpu)
    depth = len(maps.layers)
    # A map of numbers has one for each layer that the student was distilled with; its last ones may have been removed.
    layer_map = config.distillation.get("layer_map", ["uniform"])[:depth]
    layers = mapped_layers(layer_map, depth, len(theirs.layers))
    return [dataclasses.replace(theirs, layers=[1 + layer for layer in layers], maps=theirs.maps[layers]), maps]


def _of_student(folder: Path, config: ModelConfig, split: Split, cpu: bool) -> AttentionMaps:
    if config.arch not in TRANSFORMERS:
        raise UserError(f"--attention: {config.name} is a {config.arch}, which has no attention maps")
    device = pick_device(cpu)
    student, tokenizer, _ = load_student(folder, device)
    batch = encode_split(tokenizer, split).batch(np.zeros(1, np.int64), device)
    with torch.no_grad():
        _, trace = student.traced(batch)
    pieces = getattr(tokenizer, "pieces", None)
    tokens = ["[first]"]
    for sentence in batch.sentences:
        rows = sentence.ids[0, : int(sentence.lengths), 0].tolist()
        tokens += [str(number) if pieces is None else pieces[row] for number, row in enumerate(rows, 1)]
        tokens.append("[separator]")
    return _maps(config.name, tokens, trace.attention)


def _of_teacher(folder: Path, name: str, split: Split, cpu: bool) -> AttentionMaps:
    teacher = load_teacher(folder, pick_device(cpu), torch.float32)
    if not isinstance(teacher, HuggingFaceTeacher):
        raise UserError(f"--attention: {name} is not a Hugging Face teacher ({read_config(folder).arch})")
    ids = teacher.pieces(split).ids[:, 0].tolist()
    return _maps(name, teacher.tokenizer.convert_ids_to_tokens(ids), teacher.states(split).attention)


def _maps(name: str, tokens: list[str], attention: Sequence[torch.Tensor]) -> AttentionMaps:
    if len(tokens) > MOST_TOKENS:
        raise UserError(f"--attention: {len(tokens)} tokens for {name}; a picture shows at most {MOST_TOKENS}")
    maps = torch.stack([layer[0, :, : len(tokens), : len(tokens)] for layer in attention])
    return AttentionMaps(name, tokens, list(range(1, len(maps) + 1)), maps.float().cpu().numpy())


def attention_figure(models: Sequence[AttentionMaps]) -> Figure:
    """Return a figure with a row per layer and a panel for each of the first HEADS heads, models side by side."""
    from matplotlib.figure import Figure

    columns = [min(HEADS, model.maps.shape[1]) for model in models]
    rows, longest = max(len(model.layers) for model in models), max(len(model.tokens) for model in models)
    side = max(1.3, 0.085 * longest)
    figure = Figure(figsize=(side * sum(columns) + len(models), side * rows + 1.6), layout="constrained")
    blocks = figure.subfigures(1, len(models), squeeze=False, width_ratios=columns, wspace=0.05)[0]
    for block, model, count in zip(blocks, models, columns, strict=True):
        panels = block.subplots(len(model.layers), count, squeeze=False, sharex=True, sharey=True)
        for row, layer in enumerate(model.layers):
            for head in range(count):
                axes = panels[row, head]
                axes.imshow(model.maps[row, head], vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
                axes.set_title(f"layer {layer}, head {head + 1}", fontsize=7)
        ticks = range(len(model.tokens))
        labels = [wrapped(token, 20) for token in model.tokens]
        for axes in panels[-1]:
            axes.set_xticks(ticks, labels, rotation=90, fontsize=5)
        for axes in panels[:, 0]:
            axes.set_yticks(ticks, labels, fontsize=5)
        block.suptitle(wrapped(model.name, 40), fontsize=10)
    return figure
