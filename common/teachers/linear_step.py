"""Linear teachers of the workspace: on tf-idf (`--arch linear`), or on vectors of a frozen encoder (`--frozen`)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic
import torch

from common.data.split import Split, find_splits, read_split
from common.devices import Precision, pick_device, pick_dtype
from common.errors import UserError
from common.installed import typed
from common.stopping import at_once
from common.store.artifact import Artifact, read_manifest
from common.store.files import fingerprint, read_json, write_json
from common.store.step import Context, Inputs
from common.store.workspace import Workspace, workspace_of
from common.teachers.base import States
from common.teachers.frozen import FrozenEncoder, FrozenVectors
from common.teachers.huggingface.pretrained import resolve
from common.teachers.linear import Head, LinearTeacher, TfIdf, fitted
from common.teachers.settings import LINEAR
from common.teachers.step import TeacherStep, encoder_at
from common.training.checkpoint import load_tensors, save_tensors
from common.training.models import ADAPTERS_FILE, LINEAR_FOLDER, WEIGHTS_FILE, encoder_path, read_config, tasks_seen

_TERMS_FILE = "terms.json"


class Linear(TeacherStep):
    """A teacher: logistic or ridge regression on tf-idf."""

    version: ClassVar[int] = 2
    seed: int
    arch: str = pydantic.Field(LINEAR, exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the task's splits."""
        return {"splits": find_splits(paths, self.task)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Fit the model to train, and its temperature to validation."""
        features = TfIdf()
        head = self._fitted(inputs, features)
        idf = {f"idf.{number}": torch.from_numpy(values) for number, values in enumerate(features.idf)}
        save_tensors(out / LINEAR_FOLDER / WEIGHTS_FILE, {**_tensors(head), **idf}, {})
        write_json(out / LINEAR_FOLDER / _TERMS_FILE, [counter.terms for counter in features.counters])
        return self.facts([self.task.name], self.seed)

    def _fitted(self, inputs: Inputs, features: TfIdf | FrozenVectors) -> Head:
        splits, missing = inputs["splits"], f"run: {self.task.prepare_command}"
        train = read_split(splits / "train.parquet", missing)
        validation = read_split(splits / "validation.parquet", missing)
        if not train.labelled.any():
            raise UserError(f"task {self.task.name}: no row of train has a label to learn from")
        with at_once():
            return fitted(self.task, train, validation, features, self.seed).head


class Frozen(Linear):
    """A teacher: logistic or ridge regression on vectors of a frozen encoder."""

    max_tokens: int
    precision: Precision
    arch: str = pydantic.Field(exclude=True)
    source: str = pydantic.Field(exclude=True)
    """Folder or name of the encoder's weights."""
    encoder: str = pydantic.Field(exclude=True)
    """The encoder as a value of --arch, for the facts."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return also the encoder."""
        return super().inputs(paths) | {"encoder": dataclasses.replace(encoder_at(self.source), name=self.encoder)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Fit the head to train, and its temperature to validation."""
        source, device = str(inputs["encoder"]), pick_device(context.cpu)
        key, dtype = encoder_at(source).key, pick_dtype(self.precision, device)
        head = self._fitted(inputs, _vectors(context.cache, source, key, self.max_tokens, device, dtype))
        save_tensors(out / LINEAR_FOLDER / ADAPTERS_FILE, _tensors(head), {})
        seen = {*tasks_seen(source), self.task.name}
        return {**self.facts(seen, self.seed), "encoder": context.names["encoder"]}


@dataclasses.dataclass(frozen=True)
class FrozenTeacher(LinearTeacher):
    """A linear teacher on vectors of a frozen encoder."""

    def states(self, split: Split) -> States:
        """Return the vectors of single texts as their only state, [n, 1, dim]."""
        vectors = torch.from_numpy(self.features.of(split.sentence1).astype(np.float32))
        return States([vectors[:, None]], [], torch.ones(len(split), dtype=torch.int64))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the encoder and the head."""
        return {**self.features.encoder.model.state_dict(), **_tensors(self.head)}


def load_linear(folder: Path, device: torch.device, dtype: torch.dtype) -> LinearTeacher:
    """Return a teacher that `Linear` or `Frozen` wrote. dtype: of an encoder's arithmetic.

    Raises UserError if a file is missing or damaged, or if the encoder has changed.
    """
    config, place = read_config(folder), folder / LINEAR_FOLDER
    frozen = (place / ADAPTERS_FILE).exists()
    tensors, _ = load_tensors(place / (ADAPTERS_FILE if frozen else WEIGHTS_FILE))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    head = Head(arrays.pop("classifier.weight").T, arrays.pop("classifier.bias"))
    if not frozen:
        terms = read_json(place / _TERMS_FILE)
        features = TfIdf.restored(terms, [arrays[f"idf.{number}"] for number in range(len(terms))])
        return LinearTeacher(config.task_kind, features, head)
    paths = workspace_of(folder)
    source, _ = resolve(encoder_path(paths, config.encoder))
    key = encoder_at(source).key
    if key != read_manifest(folder).inputs["encoder"]:
        raise UserError(f"{folder} is a head of {config.encoder}, which has changed; run {typed('finetune')} again")
    vectors = _vectors(paths.cache(), source, key, config.settings["max_tokens"], device, dtype)
    return FrozenTeacher(config.task_kind, vectors, head)


def _vectors(
    cache: Path, source: str, key: str, max_tokens: int, device: torch.device, dtype: torch.dtype
) -> FrozenVectors:
    """Return the cached vectors of an encoder. key: fingerprint of its files."""
    identity = fingerprint([key, max_tokens, str(dtype), device.type])
    return FrozenVectors(cache, identity, lambda: FrozenEncoder(source, device, dtype, max_tokens))


def _tensors(head: Head) -> dict[str, torch.Tensor]:
    return {"classifier.weight": torch.from_numpy(head.weights.T), "classifier.bias": torch.from_numpy(head.bias)}
