"""The task that fairseq's training loop trains: data, start weights, and our history inside its checkpoints.

Import this module after fairseq (common.teachers.fairseq.library).
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fairseq_cli.train
import torch
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from common.progress import say
from common.teachers.fairseq.checkpoint import load_into, read_folder

TASK = "featherweight_sentence_prediction"


@dataclass
class FeatherweightConfig(SentencePredictionConfig):
    """fairseq's settings of sentence prediction, and three more."""

    start: str = field(default="", metadata={"help": "folder of the weights to start from"})
    freeze_embeddings: bool = field(default=False, metadata={"help": "leave the word embeddings as they are"})
    model_name: str = field(default="", metadata={"help": "name to show"})


@register_task(TASK, dataclass=FeatherweightConfig)
class FeatherweightTask(SentencePredictionTask):
    """fairseq's sentence prediction from safely read weights, with one record per epoch."""

    epoch = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.history: list[dict[str, Any]] = []

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> torch.nn.Module:
        """Return the pre-trained encoder with a new classification head; the head of an earlier task is dropped."""
        model = super().build_model(cfg, from_checkpoint)
        _, tensors = read_folder(Path(self.cfg.start))
        encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("encoder.")}
        load_into(model, encoder, ("lm_head", "classification_heads"), Path(self.cfg.start))
        model.encoder.sentence_encoder.embed_tokens.weight.requires_grad_(not self.cfg.freeze_embeddings)
        return model

    def begin_epoch(self, epoch: int, model: torch.nn.Module) -> None:
        """Remember the current epoch."""
        super().begin_epoch(epoch, model)
        self.epoch = epoch

    def post_validate(self, model: torch.nn.Module, stats: dict[str, Any], aggregator: Any) -> None:
        """Record an epoch: mean training loss so far, and the best of its validations (there is one at its end).

        The seconds are those of training so far, all epochs together; fairseq's meters begin again with each epoch.
        """
        score = -stats["loss"] * math.log(2) if self.cfg.regression_target else round(stats["accuracy"] / 100, 6)
        train = metrics.get_meters("train")  # fairseq's losses are in bits
        record = {"epoch": self.epoch - 1, "loss": float(train["loss"].avg) * math.log(2), "score": float(score)}
        if self.history and self.history[-1]["epoch"] == record["epoch"]:
            record["score"] = max(record["score"], self.history.pop()["score"])
        before = self.history[-1]["seconds"] if self.history else 0.0
        record["seconds"] = round(before + float(train["train_wall"].sum), 3)
        self.history.append(record)
        say(
            f"fine-tuning {self.cfg.model_name} epoch {self.epoch}, update {stats['num_updates']}: "
            f"loss {record['loss']:.4f}, validation {score:.4f}"
        )

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """Return what a checkpoint stores of a task: our history, and the state of fairseq's early stopping."""
        stopping = {key: float(value) for key, value in vars(fairseq_cli.train.should_stop_early).items()}
        return {type(self).__name__: {"history": self.history, "stopping": stopping}}

    def set_checkpoint_dict(self, stored: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.history = stored["history"]
        vars(fairseq_cli.train.should_stop_early).update(stored["stopping"])
