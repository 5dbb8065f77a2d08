"""General distillation: a transformer student learns a language from plain text and a pre-trained teacher.

The first of TinyBERT's two stages (Jiao et al., 2020, section 3.2), with MiniALBERT's losses (equation 11): guesses at
masked pieces, the teacher's own guesses, and the teacher's insides, layer by layer. Any task can start from the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from common.data.tasks import known_tasks
from common.data.tokens import EncodedText
from common.devices import pick_device
from common.errors import UserError
from common.progress import bar, say
from common.seeds import derive, seed_everything
from common.store.locks import only_one
from common.store.workspace import file_fingerprint, fingerprint, whole_folder, write_json
from common.teachers.general import GeneralTeacher, load_general
from common.training.batching import shuffled_batches, sorted_batches
from common.training.checkpoint import save_tensors
from common.training.models import CONFIG_FILE, GENERAL, WEIGHTS_FILE, ModelConfig, clear_training, is_finished
from common.training.training import Run, fit, write_history
from compression.distillation.alignment import Aligner, InsideTeacher, check_alignment
from compression.distillation.corpus import corpus_file, read_corpus
from compression.distillation.losses import masked_kl, masked_lm
from compression.distillation.masking import MaskedStudent, mask
from compression.distillation.trainer import make_optimizer, run_recipe
from compression.settings import CompressSettings
from compression.students.batch import Batch
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.teacher_layers import check_arch
from compression.tokenizers.teacher_vocabulary import vocabulary_of
from compression.tokenizers.wordpiece import WordPieceTokenizer

_HELD_OUT_EVERY, _HELD_OUT_MOST = 50, 1000
"""Every fiftieth text chooses among epochs, a thousand at most."""
_BATCH = 64


def pretrain(settings: CompressSettings) -> Path:
    """Train and save a general student. Returns its model folder; a finished one is reused, a stopped one goes on.

    Raises UserError for a corpus without text, and a teacher that cannot give what is asked for.
    """
    check_arch("pretrain", settings, settings.student_arch)
    corpus_file(settings.corpus, settings.paths)
    teacher = load_general(str(settings.teacher))
    vocabulary = vocabulary_of(teacher.tokenizer, teacher.name)
    if vocabulary.mask is None:
        raise UserError(f"pretrain: {teacher.name}'s vocabulary has no piece that masks another")
    settings = settings.model_copy(update={"output_weight": _output_weight(settings, teacher)})
    if settings.aligns:
        check_alignment(settings, teacher.model.config.to_dict(), teacher.name)
    elif not settings.output_weight and not settings.masked_lm_weight:
        raise UserError("pretrain: every loss has a weight of 0; give --align-hidden and its like, or others")
    tokenizer = vocabulary.tokenizer(settings.max_tokens)
    student_settings = settings.student().model_copy(update={"vocab_size": tokenizer.vocab_size})
    name = settings.model_name or f"{settings.student_arch}-{teacher.name}-s{settings.seed}"
    config = ModelConfig(
        name=name,
        kind="student",
        stage=GENERAL,
        task=GENERAL,
        labels=(),
        pair=False,
        arch=settings.student_arch,
        seed=settings.seed,
        teacher=teacher.name,
        trained_on=(str(settings.corpus),) if settings.corpus in known_tasks() else (),
        settings=settings.pretraining(),
        student=student_settings.model_dump(mode="json"),
        fingerprint=_identity(settings, tokenizer, teacher.model),
    )
    folder = settings.paths.model(GENERAL, name)
    with only_one(folder, f"student {name}"):
        if is_finished(folder, config.fingerprint, settings.force):
            say(f"student {name} is up to date")
        else:
            inside = InsideTeacher(teacher.model, vocabulary, pick_device(settings.cpu))
            _make(settings, config, student_settings, inside, tokenizer, folder)
    return folder


def _output_weight(settings: CompressSettings, teacher: GeneralTeacher) -> float:
    """Of the teacher's guesses: 1 where it guesses and nothing else is said."""
    if settings.output_weight and not teacher.has_head:
        raise UserError(
            f"--output-weight: {teacher.name} has no head that guesses masked pieces; leave the flag out, and learn "
            "from its insides (--align-hidden, --align-attention)"
        )
    return float(teacher.has_head) if settings.output_weight is None else settings.output_weight


def _identity(settings: CompressSettings, tokenizer: WordPieceTokenizer, model: nn.Module) -> str:
    weights = hashlib.sha256()
    for tensor in model.state_dict().values():
        weights.update(tensor.contiguous().numpy().tobytes())
    corpus = file_fingerprint(corpus_file(settings.corpus, settings.paths))
    return fingerprint([settings.pretraining(), corpus, tokenizer.identity, weights.hexdigest()])


def _make(
    settings: CompressSettings,
    config: ModelConfig,
    student_settings: StudentSettings,
    teacher: InsideTeacher,
    tokenizer: WordPieceTokenizer,
    folder: Path,
) -> None:
    """Train a fresh student and save it, but for its classifier."""
    texts = read_corpus(corpus_file(settings.corpus, settings.paths), tokenizer)
    seed_everything(settings.seed)
    student = Student(config.arch, student_settings, 1, False)
    masked = MaskedStudent(student, student_settings.encoder_hidden_dim, student_settings.embedding_dim)
    history = _train(settings, masked, teacher, texts, folder, config.fingerprint)
    kept = {name: tensor for name, tensor in student.state_dict().items() if not name.startswith("classifier.")}
    with whole_folder(folder) as partial:
        save_tensors(partial / WEIGHTS_FILE, kept, {})
        tokenizer.save(partial)
        write_json(partial / CONFIG_FILE, config.model_dump(mode="json"))
        write_history(partial / "history.jsonl", history)
    clear_training(folder)


def _train(
    settings: CompressSettings,
    masked: MaskedStudent,
    teacher: InsideTeacher,
    texts: EncodedText,
    folder: Path,
    fingerprint: str,
) -> list[dict[str, Any]]:
    """Train in place; the best weights come back to the CPU. Returns one dict an epoch."""
    device = pick_device(settings.cpu)
    masked.to(device)
    aligner = Aligner(settings, teacher).to(device)
    held_out = np.arange(0, len(texts), _HELD_OUT_EVERY)[:_HELD_OUT_MOST]
    learned = np.setdiff1d(np.arange(len(texts)), held_out) if len(texts) > _HELD_OUT_EVERY else np.arange(len(texts))

    def loss(rows: np.ndarray) -> torch.Tensor:
        return _loss(settings, masked, aligner, Batch.of(texts, rows, device))

    def validate() -> float:
        return -_mean_loss(masked, loss, [held_out[rows] for rows in sorted_batches(texts.lengths[held_out], _BATCH)])

    run = Run(
        model=masked,
        optimizer=make_optimizer(settings, nn.ModuleList([masked, aligner])),
        batches=lambda epoch: [
            learned[rows]
            for rows in shuffled_batches(texts.lengths[learned], settings.batch_size, settings.seed, epoch)
        ],
        loss=loss,
        validate=validate,
        epochs=settings.epochs,
        fingerprint=fingerprint,
        on_start=aligner.start,
        extra_state=aligner.state,
        **run_recipe(settings, folder),
    )
    history = fit(run)
    masked.cpu()
    return history


def _loss(settings: CompressSettings, masked: MaskedStudent, aligner: Aligner, text: Batch) -> torch.Tensor:
    """Weighted sum of all losses of a batch (MiniALBERT's equation 11)."""
    batch = mask(text.ids, text.lengths, len(masked.bias))
    guesses, trace = masked(batch)
    total = settings.masked_lm_weight * masked_lm(guesses, batch.targets)
    if not settings.output_weight and not settings.aligns:
        return total
    states = aligner.states(Batch(batch.ids, batch.lengths), batch.hidden)
    if settings.output_weight:
        theirs = states.logits[:, 1 : 1 + text.ids.shape[1]][batch.chosen][:, aligner.teacher.rows]
        total = total + settings.output_weight * masked_kl(guesses, theirs)
    return total + aligner.loss(trace, states)


def _mean_loss(masked: MaskedStudent, loss: Callable[[np.ndarray], torch.Tensor], batches: list[np.ndarray]) -> float:
    """Over rows that are not learned from, with the same pieces masked every time."""
    masked.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive("validation"))
        losses = [loss(rows).item() for rows in bar(batches, "validating")]
    masked.train()
    return float(np.average(losses, weights=[len(rows) for rows in batches]))
