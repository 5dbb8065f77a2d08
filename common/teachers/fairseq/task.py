"""The task that fairseq's training loop trains: data, start weights, and our history inside its checkpoints.

Import this module after fairseq (common.teachers.fairseq.library).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from common.data.tasks import Task
from common.progress import say
from common.teachers.fairseq.checkpoint import load_into, read_model
from common.training.metrics import main_score

TASK = "featherweight_sentence_prediction"


@dataclass
class FeatherweightConfig(SentencePredictionConfig):
    """fairseq's settings of sentence prediction, and three more."""

    start: str = field(default="", metadata={"help": "checkpoint to start from"})
    freeze_embeddings: bool = field(default=False, metadata={"help": "leave the word embeddings as they are"})
    model_name: str = field(default="", metadata={"help": "name to show"})


@register_task(TASK, dataclass=FeatherweightConfig)
class FeatherweightTask(SentencePredictionTask):
    """fairseq's sentence prediction from safely read weights, with one record per epoch."""

    epoch = 0
    scored: Task
    """The task whose first metric chooses the checkpoint; set before training."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.history: list[dict[str, Any]] = []

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> torch.nn.Module:
        """Return the pre-trained encoder with a new classification head; the head of an earlier task is dropped."""
        model = super().build_model(cfg, from_checkpoint)
        _, tensors = read_model(Path(self.cfg.start))
        encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("encoder.sentence_encoder.")}
        load_into(model, encoder, ("lm_head", "classification_heads"), Path(self.cfg.start))
        model.encoder.sentence_encoder.embed_tokens.weight.requires_grad_(not self.cfg.freeze_embeddings)
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> torch.nn.Module:
        """Return the loss; in validation it also logs predictions and labels."""
        criterion = super().build_criterion(cfg, from_checkpoint)
        criterion.keep_pred_and_targ = True
        return criterion

    def begin_epoch(self, epoch: int, model: torch.nn.Module) -> None:
        """Remember the current epoch."""
        super().begin_epoch(epoch, model)
        self.epoch = epoch

    def begin_valid_epoch(self, epoch: int, model: torch.nn.Module) -> None:
        """Drop the logged predictions of earlier validations, which checkpoints would store."""
        super().begin_valid_epoch(epoch, model)
        metrics.reset_meters("valid")

    def reduce_metrics(self, logging_outputs: Sequence[dict[str, Any]], criterion: torch.nn.Module) -> None:
        """Log also the score of a validation."""
        super().reduce_metrics(logging_outputs, criterion)
        if "pred" in logging_outputs[0]:
            metrics.log_derived("score", self._score)

    def _score(self, meters: Any) -> float:
        """Return the task's first metric of the logged classes, or of the logged scores scaled to [0, 1]."""
        predicted, labels = (meters[name].tensor.numpy() for name in ("pred", "targ"))
        if self.scored.kind.has_classes:
            return main_score(self.scored, labels, np.eye(self.scored.outputs)[predicted])
        return main_score(self.scored, self.scored.kind.choices(self.scored, labels[:, None]), predicted[:, None])

    def post_validate(self, model: torch.nn.Module, stats: dict[str, Any], aggregator: Any) -> None:
        """Record an epoch: mean training loss so far, and the best of its validations (there is one at its end).

        The seconds are those of training so far, all epochs together; fairseq's meters begin again with each epoch.
        """
        train = metrics.get_meters("train")  # fairseq's losses are in bits
        record = {"epoch": self.epoch - 1, "loss": float(train["loss"].avg) * math.log(2), "score": stats["score"]}
        if self.history and self.history[-1]["epoch"] == record["epoch"]:
            record["score"] = max(record["score"], self.history.pop()["score"])
        before = self.history[-1]["seconds"] if self.history else 0.0
        record["seconds"] = round(before + float(train["train_wall"].sum), 3)
        self.history.append(record)
        say(
            f"fine-tuning {self.cfg.model_name} epoch {self.epoch}, update {stats['num_updates']}: "
            f"loss {record['loss']:.4f}, validation {stats['score']:.4f}"
        )

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """Return what a checkpoint stores of a task: our history."""
        return {type(self).__name__: {"history": self.history}}

    def set_checkpoint_dict(self, stored: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.history = stored["history"]
