"""General distillation: a transformer student learns a language from plain text and a pre-trained teacher.

The first of TinyBERT's two stages (Jiao et al., 2020, section 3.2), with MiniALBERT's losses (equation 11): on masked
pieces, on the teacher's predictions for them, and on its hidden states and attention maps. The temperature and the
start from the teacher are DistilBERT's (Sanh et al., 2019, section 2), the predictions about pairs of texts ALBERT's
and BERT's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic
import torch
from torch import nn

from common.devices import autocast, pick_device, pick_dtype
from common.errors import UserError
from common.progress import bar
from common.seeds import derive, seed_everything
from common.store.artifact import Artifact, artifact_at
from common.store.step import Context, Inputs, Step
from common.store.workspace import Workspace
from common.teachers.huggingface.pretrained import load_general, resolve
from common.teachers.layers import as_bert, with_usual_names
from common.teachers.step import encoder_at
from common.training.batching import shuffled_batches, sorted_batches
from common.training.checkpoint import save_tensors
from common.training.loop import Run, fit
from common.training.losses import kl
from common.training.models import GENERAL, WEIGHTS_FILE, tasks_seen, write_history
from compression.distillation.alignment import Aligner, AlignmentTeacher, check_alignment
from compression.distillation.corpus import corpus_files, corpus_tasks, learned_and_held_out, read_corpus
from compression.distillation.masking import Masked, MaskedStudent, at_chosen, mask
from compression.distillation.sentences import changed, divided
from compression.distillation.settings import (
    AlignSettings,
    PretrainFlags,
    PretrainSettings,
    SentenceTask,
    TrainSettings,
    Words,
)
from compression.distillation.trainer import make_optimizer, run_recipe
from compression.students.batch import Batch, EncodedRows
from compression.students.init import check_arch, check_sizes, layers_to_copy, start_from_layers
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.teacher_vocabulary import vocabulary_of

_BATCH = 64


class Pretrain(Step):
    """A general student, trained on plain text, from which students of any task can start."""

    version: ClassVar[int] = 3

    seed: int
    student_arch: str
    student: StudentSettings
    objective: PretrainSettings
    train: TrainSettings
    align: AlignSettings | None
    init_from_teacher: Words = ()
    corpus: tuple[str, ...] = pydantic.Field(exclude=True)
    """Files and tasks of --corpus."""
    teacher: str = pydantic.Field(exclude=True)
    """Name or folder of the encoder to learn from."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the files of the corpus and the teacher."""
        source, name = resolve(self.teacher, paths.downloads())
        corpus = {f"corpus {i}": _corpus_at(file) for i, file in enumerate(corpus_files(self.corpus, paths))}
        return {**corpus, "teacher": dataclasses.replace(encoder_at(source), name=name)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Train a student and save it, without its classifier; a stopped run is resumed."""
        teacher, device = load_general(str(inputs["teacher"])), pick_device(context.cpu)
        vocabulary = vocabulary_of(teacher.tokenizer, context.names["teacher"])
        tokenizer = vocabulary.tokenizer(self.student.max_tokens)
        alignment_teacher = AlignmentTeacher(teacher.model, vocabulary, device)
        files = [path for role, path in inputs.items() if role.startswith("corpus ")]
        objective, pairs = self.objective, self.objective.sentence_task is not None
        overlap, most = objective.window_overlap, objective.max_windows
        texts = read_corpus(files, tokenizer, context.work / "tokens", overlap, most, objective.join_texts)
        rows = divided(texts, vocabulary.whole) if pairs else EncodedRows(texts)
        if not len(rows):
            raise UserError(
                "--corpus: no text has two words, as the losses of sentence order and next sentence require"
            )
        seed_everything(self.seed)
        student = Student(self.student_arch, self.student, outputs=1, pair=pairs)
        width, dim = self.student.encoder_hidden_dim, self.student.embedding_dim
        # Embeddings are drawn with a standard deviation of 1: unscaled, initial predictions are far too confident.
        masked = MaskedStudent(student, width, dim, scale=1.0 if self.init_from_teacher else dim**0.5, pairs=pairs)
        if self.init_from_teacher:
            depth = teacher.model.config.num_hidden_layers
            tensors = as_bert(teacher.model.state_dict(), teacher.model.config.to_dict())
            layers = layers_to_copy(self.init_from_teacher, len(student.encoder.blocks), depth)
            start_from_layers(student, self.student, layers, tensors, vocabulary)
            masked.start_from(tensors, vocabulary)
        masked.to(device)
        align = self.align or AlignSettings()
        aligner = Aligner(align, self.student_arch, self.student, alignment_teacher, self.train.epochs).to(device)
        history = self._train(masked, aligner, rows, context)
        kept = {name: tensor for name, tensor in student.state_dict().items() if not name.startswith("classifier.")}
        save_tensors(out / WEIGHTS_FILE, kept, {})
        tokenizer.save(out)
        write_history(out, history)
        tasks = {*corpus_tasks(files), *tasks_seen(str(inputs["teacher"]))}
        return {
            "kind": "student",
            "stage": GENERAL,
            "task": GENERAL,
            "labels": (),
            "pair": pairs,
            "arch": self.student_arch,
            "seed": self.seed,
            "teacher": context.names["teacher"],
            "trained_on": tuple(sorted(tasks)),
            "student": self.student.model_dump(mode="json"),
        }

    def _train(
        self, masked: MaskedStudent, aligner: Aligner, encoded: EncodedRows, context: Context
    ) -> list[dict[str, Any]]:
        """Train in place, leaving the best weights on the CPU. Returns one dict per epoch."""
        settings, objective = self.train, self.objective
        if objective.output_weight or aligner.settings.aligns:
            aligner.teacher.check_rows(encoded)
        lengths, device = encoded.lengths, masked.mask.device
        dtype = pick_dtype(settings.precision, device)
        learned, held_out = learned_and_held_out(len(encoded), self.student.max_tokens, objective.window_overlap)
        figures: dict[str, float] = {}

        def drawn(rows: np.ndarray) -> Drawn:
            return draw(encoded.batch(rows, device), objective.sentence_task, len(masked.bias))

        def losses(text: Drawn, whole: Drawn | None = None) -> dict[str, torch.Tensor]:
            with autocast(dtype, device):
                return pretraining_losses(objective, masked, aligner, text, whole)

        def losses_of_parts(rows: np.ndarray, parts: int) -> Iterator[torch.Tensor]:
            # Drawn before the batch is divided: texts are exchanged within it, and losses are means over what is drawn.
            whole = drawn(rows)
            if parts == 1:
                yield losses(whole)["loss"]
                return
            for part in np.array_split(np.arange(len(rows)), parts):
                yield losses(whole.take(slice(part[0], part[-1] + 1)), whole)["loss"]

        def validate() -> float:
            """Return minus the mean loss over the held-out rows, with the same pieces masked every time."""
            masked.eval()
            batches = [held_out[batch] for batch in sorted_batches(lengths[held_out], _BATCH)]
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive("validation"))
                of_batches = [losses(drawn(batch)) for batch in bar(batches, "validating")]
            masked.train()
            weights = [len(batch) for batch in batches]
            for name in of_batches[0]:
                values = [figures_of_batch[name].item() for figures_of_batch in of_batches]
                figures[name] = float(np.average(values, weights=weights))
            return -figures.pop("loss")

        run = Run(
            model=masked,
            optimizer=make_optimizer(settings, nn.ModuleList([masked, aligner])),
            batches=lambda epoch: [
                learned[batch] for batch in shuffled_batches(lengths[learned], settings.batch_size, self.seed, epoch)
            ],
            losses=losses_of_parts,
            validate=validate,
            figures=lambda: figures,
            epochs=settings.epochs,
            callbacks=[aligner],
            **run_recipe(settings, self.seed, context),
        )
        history = fit(run)
        masked.cpu()
        return history


def pretrain(settings: PretrainFlags) -> Path:
    """Build a general student and return its model folder; a finished run is reused, a stopped one is resumed.

    Raises UserError if the corpus has no text, or the teacher lacks what the settings require.
    """
    check_arch("pretrain", settings, settings.student_arch)
    corpus_files(settings.corpus, settings.paths)
    teacher = load_general(str(settings.teacher), settings.paths.downloads())
    vocabulary = vocabulary_of(teacher.tokenizer, teacher.name)
    if vocabulary.mask is None:
        raise UserError(f"pretrain: {teacher.name}'s vocabulary has no mask token")
    config = with_usual_names(teacher.model.config.to_dict())
    if settings.init_from_teacher:
        check_sizes(settings, config, teacher.name)
    if (settings.output_weight or settings.output_temperature != 1) and not teacher.has_head:
        flag = "--output-weight" if settings.output_weight else "--output-temperature"
        raise UserError(
            f"{flag}: {teacher.name} has no head that predicts masked pieces; leave the flag out, and learn "
            "from its hidden states and attention maps (--align-hidden, --align-attention)"
        )
    if settings.output_weight is None:
        settings = settings.model_copy(update={"output_weight": float(teacher.has_head)})
    if settings.aligns:
        check_alignment(settings, settings.student_arch, settings, config, teacher.name)
    elif not settings.output_weight and not settings.masked_lm_weight and settings.sentence_task is None:
        raise UserError("pretrain: every loss has weight 0; give one a positive weight, such as --align-hidden 1")
    step = Pretrain(
        seed=settings.seed,
        student_arch=settings.student_arch,
        student=settings.part(StudentSettings).model_copy(update={"vocab_size": len(vocabulary.pieces)}),
        objective=settings.part(PretrainSettings).model_copy(update={"corpus": ()}),
        train=settings.part(TrainSettings),
        align=settings.part(AlignSettings).throughout() if settings.aligns else None,
        init_from_teacher=settings.init_from_teacher,
        corpus=settings.corpus,
        teacher=str(settings.teacher),
    )
    name = settings.model_name or f"{settings.student_arch}-{teacher.name}-s{settings.seed}"
    return settings.paths.make(step, settings.context(name), alias=settings.paths.model(GENERAL, name)).path


def _corpus_at(file: Path) -> Artifact:
    # Text, or the train rows of a task, which are part of its splits.
    return artifact_at(file.parent).at(file.name) if file.suffix == ".parquet" else Artifact.of_file(file)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A batch with what is drawn for it: masked pieces, and for pairs, if there is a loss on them, changed pairs.

    stays: int64 [batch], 1 where a pair is unchanged, else 0.
    """

    sentences: tuple[Masked, ...]
    stays: torch.Tensor | None = None

    @property
    def lengths(self) -> torch.Tensor:
        """Number of tokens of each text, special tokens included, int64 [batch]."""
        return 1 + sum(text.lengths + 1 for text in self.sentences)

    @property
    def chosen(self) -> int:
        """Number of pieces to predict."""
        return sum(int(text.chosen.sum()) for text in self.sentences)

    def take(self, rows: slice) -> Drawn:
        """Return some texts of the batch."""
        stays = None if self.stays is None else self.stays[rows]
        return Drawn(tuple(text.take(rows) for text in self.sentences), stays)


def draw(batch: Batch, task: SentenceTask | None, pieces: int) -> Drawn:
    """Change the pairs of a batch, if there is a task for them, and mask its pieces. pieces: size of the vocabulary."""
    batch, stays = (batch, None) if task is None else changed(batch, task)
    return Drawn(tuple(mask(text.ids, text.lengths, pieces) for text in batch.sentences), stays)


def pretraining_losses(
    settings: PretrainSettings, masked: MaskedStudent, aligner: Aligner, batch: Drawn, whole: Drawn | None = None
) -> dict[str, torch.Tensor]:
    """Return the losses and accuracies of a batch, scalars.

    loss: the weighted sum of all losses (MiniALBERT's equation 11); masked_loss and masked_accuracy: cross-entropy, in
    nats, and accuracy of the predicted pieces (the perplexity is e to the power of this loss); sentence_accuracy: of
    the prediction for pairs, if there is one.
    whole: the whole batch, if `batch` is a part of it. The parts' losses (but not the other figures) then add up to the
    batch's: each is multiplied by the part's share of the pieces, pairs or tokens that it is a mean over.
    """
    sentences, stays = batch.sentences, batch.stays
    predicted, trace = masked(sentences)
    targets = torch.cat([text.targets for text in sentences])
    predicted = predicted.float()
    of_pieces, of_pairs = 1.0, 1.0
    if whole is not None:
        of_pieces = len(targets) / whole.chosen
        of_pairs = len(batch.lengths) / len(whole.lengths)
    any_piece = len(targets) > 0  # a part may have none, and the mean over none is not a number
    masked_loss = nn.functional.cross_entropy(predicted, targets) if any_piece else predicted.sum()  # equation 6
    total = settings.masked_lm_weight * of_pieces * masked_loss
    figures = {"masked_loss": masked_loss, "masked_accuracy": _accuracy(predicted, targets)}
    if stays is not None and masked.pairs is not None:
        weight = settings.sentence_order_weight + settings.next_sentence_weight  # one of them is 0
        pairs = masked.pairs(trace.hidden[-1][:, 0])
        total = total + weight * of_pairs * nn.functional.cross_entropy(pairs, stays)
        figures["sentence_accuracy"] = _accuracy(pairs, stays)
    if not settings.output_weight and not aligner.settings.aligns:
        return {"loss": total, **figures}
    first, *others = sentences
    second = Batch(others[0].ids, others[0].lengths) if others else None
    states = aligner.states(Batch(first.ids, first.lengths, second), [text.hidden for text in sentences])
    if settings.output_weight and any_piece:
        theirs = at_chosen(states.logits, sentences)[:, aligner.teacher.rows].float()
        divergence = kl(predicted, theirs, settings.output_temperature)  # equation 10
        total = total + settings.output_weight * of_pieces * divergence
    return {"loss": total + aligner.loss(trace, states, None if whole is None else whole.lengths), **figures}


def _accuracy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (logits.argmax(-1) == targets).float().mean()
