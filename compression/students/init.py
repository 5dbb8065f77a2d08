"""Initialisation of a transformer student, general or of a task, from a teacher's or a general student's layers.

As in DistilBERT (Sanh et al., 2019), a student is initialised with every other layer of a teacher, or any other choice.
Its layers have the teacher's shape; its embedding may be narrower, and is then initialised with the best low-rank
factorisation of the teacher's (singular values). Word pieces, or RoBERTa's byte-level pairs, must be the teacher's own.
A general student has everything but a classifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from common.config import build, flag, shown_default
from common.data.task_use import check_no_overlap
from common.data.tasks import Task
from common.errors import UserError
from common.installed import typed
from common.store.workspace import Workspace
from common.teachers.layers import has_layers, layer_tensors, layers_config
from common.training.checkpoint import load_tensors
from common.training.models import GENERAL, WEIGHTS_FILE, model_folder, read_config
from compression.runtime import TRANSFORMERS
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.teacher_vocabulary import TeacherVocabulary, teacher_vocabulary

_FLAG = "--init-from-teacher"
_TEACHER_SIZES = {
    "hidden_size": "encoder_hidden_dim",
    "num_attention_heads": "heads",
    "intermediate_size": "intermediate_dim",
}
"""BERT's name -> the student's name of each size that student and teacher must share."""
_GENERAL_SIZES = (
    *("embedding_type", "embedding_dim", "encoder_hidden_dim", "heads", "head_dim", "intermediate_dim"),
    *("share", "segments"),
)
"""Settings that a student and a general student must share, in addition to the depth."""
_KINDS = ("bert", "roberta")
"""transformers' names of encoders whose layers have the same structure as a student's."""
_DEPTH = {"transformer": "layers", "recursive": "iterations"}
_LAYER = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
"""Module of a block -> BERT's name of it."""


def check_arch(flag: str, settings: StudentSettings, arch: str) -> None:
    """Raise UserError if the student is not a transformer on a teacher's word pieces. flag: for the message."""
    if arch not in TRANSFORMERS:
        raise UserError(f"{flag} is for transformers: a {arch} has no layers like those of a teacher")
    if settings.embedding_type != "wordpiece":
        raise UserError(f"{flag} needs the teacher's word pieces: --embedding-type wordpiece")


def check_layers(flag: str, settings: StudentSettings, arch: str, teacher: Path) -> dict[str, Any]:
    """Return the teacher's settings (`layers_config`). Raises UserError if student or teacher has no such layers."""
    check_arch(flag, settings, arch)
    if names := read_config(teacher).members:
        raise UserError(
            f"{flag}: {teacher.name} is an ensemble and has no layers: learn from one of {', '.join(names)}"
        )
    return layers_config(teacher)


def check_start(settings: StudentSettings, arch: str, teacher: Path) -> None:
    """Raise UserError, with the flag to set, if the student cannot start from this teacher."""
    config = check_layers(_FLAG, settings, arch, teacher)
    if not has_layers(teacher):
        raise UserError(f"{_FLAG}: {teacher.name} has only adapters; its layers are those of its encoder")
    check_sizes(settings, config, teacher.name)


def check_sizes(settings: StudentSettings, config: dict[str, Any], teacher: str) -> None:
    """Raise UserError, with the flag to set, if the sizes of a teacher's layers differ from the student's.

    config: the teacher's config.json; teacher: its name.
    """
    if config.get("model_type") not in _KINDS:
        kinds = " or a ".join(_KINDS)
        raise UserError(f"{_FLAG}: {teacher} is a {config.get('model_type')}; layers can be copied from a {kinds}")
    for theirs, ours in _TEACHER_SIZES.items():
        if config[theirs] != getattr(settings, ours):
            setting, value = ours.removeprefix("encoder_"), config[theirs]
            raise UserError(f"{_FLAG}: {theirs} of {teacher} is {value}: set {flag(setting)} {value}")
    if (activation := config.get("hidden_act", "gelu")) != "gelu":
        raise UserError(f"{_FLAG}: the activation of {teacher} is {activation}, a student's is gelu")
    if settings.head_dim not in (0, head_dim := config["hidden_size"] // config["num_attention_heads"]):
        raise UserError(f"{_FLAG}: heads of {teacher} are {head_dim} wide: leave out --head-dim")
    if settings.embedding_dim > (width := config["hidden_size"]):
        raise UserError(f"{_FLAG}: the embedding of {teacher} is {width} wide: set --embedding-rank {width} or less")


def choose_layers(
    flag: str, how: Sequence[str], depth: int, teacher_depth: int, named: Mapping[str, Sequence[int]]
) -> list[int]:
    """Return the index of one of the teacher's layers for each of the student's `depth` layers, from 0.

    how: one of the names in `named`, or the indexes themselves. Raises UserError if the map does not fit.
    """
    if len(how) == 1 and how[0] in named:
        layers = list(named[how[0]])[:depth]
    elif all(word.isdecimal() for word in how):
        layers = [int(word) for word in how]
    else:
        raise UserError(f"{flag} {' '.join(how)}: give {', '.join(named)}, or numbers of layers")
    if len(layers) != depth or not all(0 <= layer < teacher_depth for layer in layers):
        counts = f"{len(layers)} of the teacher's {teacher_depth} layers for {depth} of the student's"
        raise UserError(f"{flag} {' '.join(how)}: {counts}")
    return layers


def layers_to_copy(how: Sequence[str], depth: int, theirs: int) -> list[int]:
    """Return the index of one of the teacher's `theirs` layers for each of the student's `depth` blocks, from 0.

    how: every-other, first or last, or the indexes themselves. Raises UserError if the map does not fit.
    """
    named = {"every-other": range(0, theirs, 2), "first": range(depth), "last": range(theirs - depth, theirs)}
    return choose_layers(_FLAG, how, depth, theirs, named)


def start_from_teacher(student: Student, settings: StudentSettings, layers: Sequence[int], teacher: Path) -> None:
    """Copy a fine-tuned teacher's embedding and layers into a fresh student, in place; see `start_from_layers`.

    teacher: a model folder that passed `check_start`.
    """
    start_from_layers(student, settings, layers, layer_tensors(teacher), teacher_vocabulary(teacher))


def start_from_layers(
    student: Student,
    settings: StudentSettings,
    layers: Sequence[int],
    tensors: Mapping[str, torch.Tensor],
    vocabulary: TeacherVocabulary,
) -> None:
    """Copy a teacher's embedding and layers into a fresh student, in place.

    layers: the teacher's layer for each of the student's blocks; tensors: the teacher's by BERT's names (`as_bert`), of
    sizes that `check_sizes` accepts. If the student has no segments, the first segment's embedding is added to its
    positions; if the teacher has only one segment (RoBERTa), both of the student's are initialised with it.
    """
    theirs = dict(tensors)
    rows, special = torch.from_numpy(vocabulary.rows), torch.tensor(vocabulary.special_tokens)
    vectors = theirs["embeddings.word_embeddings.weight"]
    start: dict[str, torch.Tensor] = {}
    if settings.embedding_dim < settings.encoder_hidden_dim:
        _, _, right = torch.linalg.svd(vectors[rows], full_matrices=False)
        basis = right[: settings.embedding_dim]
        start["encoder.projection.weight.value"] = basis.T
        start["encoder.projection.bias"] = torch.zeros(settings.encoder_hidden_dim)
        vectors = vectors @ basis.T
    start["embedding.table.weight.value"] = vectors[rows]
    start["encoder.marks.weight.value"] = vectors[special]
    segments, positions = (f"embeddings.{kind}_embeddings.weight" for kind in ("token_type", "position"))
    if not settings.segments:
        theirs[positions] = theirs[positions] + theirs[segments][0]
    elif len(theirs[segments]) == 1:
        theirs[segments] = theirs[segments].expand(2, -1)
    names = {"positions": "position_embeddings", "segments": "token_type_embeddings", "norm": "LayerNorm"}
    names = {ours: f"embeddings.{name}" for ours, name in names.items()}
    for block, layer in enumerate(layers):
        names |= {f"blocks.{block}.{ours}": f"encoder.layer.{layer}.{name}" for ours, name in _LAYER.items()}
    for name in student.encoder.state_dict():
        module, _, kind = name.removesuffix(".value").rpartition(".")
        if module in names:
            start[f"encoder.{name}"] = theirs[f"{names[module]}.{kind}"]
    _copy(student, start)


def _copy(student: Student, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy the first rows of each tensor, by name; rows that only the student has stay as they are."""
    targets = student.state_dict()  # the student's own tensors, not copies
    for name, tensor in tensors.items():
        rows = min(len(tensor), len(targets[name]))
        targets[name][:rows] = tensor[:rows]


def find_general(paths: Workspace, name: str, arch: str, settings: StudentSettings, task: Task) -> Path:
    """Return the folder of the general student of this name, for --start-from.

    Raises UserError if there is none, if its shape differs, or if it was trained on the task's evaluation rows.
    """
    folder = model_folder(paths, GENERAL, name)
    config = read_config(folder)
    check_no_overlap(config.trained_on, task, paths)
    if config.stage != GENERAL:
        raise UserError(f"--start-from {name}: not a general student; {typed('compress')} pretrain trains one")
    if config.arch != arch:
        raise UserError(f"--start-from {config.name} is a {config.arch}: --student-arch {config.arch}")
    theirs, shared = build(StudentSettings, config.student), [*_GENERAL_SIZES, _DEPTH[config.arch]]
    if settings.adapters and theirs.adapters:
        shared.append("adapters")
    for setting in shared:
        value = getattr(theirs, setting)
        if getattr(settings, setting) != value:
            raise UserError(f"--start-from {config.name}: {flag(setting)} is {shown_default(value)}; give the same")
    return folder


def start_from_general(student: Student, folder: Path) -> None:
    """Copy embedding and layers into a fresh student, in place, except adapters that only one of them has.

    If tables differ in length (positions: --max-tokens, pairs), their first rows are copied.
    """
    tensors, names = load_tensors(folder / WEIGHTS_FILE)[0], student.state_dict().keys()
    _copy(student, {name: tensor for name, tensor in tensors.items() if name in names})


def freeze_all_but_adapters(student: Student) -> None:
    """Freeze everything but adapters and classifier, in place (adapter tuning)."""
    for name, parameter in student.named_parameters():
        parameter.requires_grad_(name.startswith(("encoder.adapters.", "classifier.")))
