"""General distillation: pieces are masked as by BERT, predictions are learned, any task starts from the result."""

import functools
import json
import shutil

import numpy as np
import pytest
import tiny
import torch
from own_task import labelled_rows, own_task
from stops import stopped_in_step

from common.config import build
from common.data.prepare import prepare
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import artifact_at, read_manifest
from common.store.workspace import Workspace
from common.teachers.huggingface.pretrained import load_general
from common.training.checkpoint import load_tensors
from common.training.models import read_config
from compression.distillation.alignment import Aligner, AlignmentTeacher
from compression.distillation.corpus import corpus_files, read_corpus
from compression.distillation.masking import MaskedStudent, mask
from compression.distillation.pretrain import draw, pretraining_losses
from compression.distillation.sentences import changed, divided
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings, defaults_for
from compression.students.batch import EncodedRows
from compression.students.init import find_general
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.teacher_vocabulary import vocabulary_of

FROM_MINI = {"start_from": "mini", "only_original_data": True, "alpha": 1.0}
SHAPE = {"embedding_dim": 8, "encoder_hidden_dim": 12, "heads": 2, "intermediate_dim": 16, "max_tokens": 24}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(text for text, _ in tiny.sentences(150)) + "\n")
    return path


def compressed(**given):
    values = {"epochs": 1, "batch_size": 16, "cpu": True, **given}
    (folder,) = compress(CompressSettings(**{**defaults_for(values), **values}))
    return folder


def pretrained(workspace, teacher, corpus, **given):
    values = {"compression_actions": ("pretrain",), "teacher": str(teacher), "corpus": (str(corpus),) if corpus else ()}
    return compressed(**values, workspace=workspace, **{"model_name": "mini", "dropout": 0.0, **SHAPE, **given})


def test_pieces_are_masked_as_bert_masks_them():
    torch.manual_seed(1)
    ids = torch.randint(1000, 2000, (400, 50, 1))
    lengths = torch.full((400,), 40)
    masked = mask(ids, lengths, 1000)
    assert not masked.chosen[:, 40:].any()
    assert masked.chosen[:, :40].float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert masked.targets.tolist() == ids[..., 0][masked.chosen].tolist()
    assert (masked.hidden <= masked.chosen).all()
    assert (masked.hidden.sum() / masked.chosen.sum()).item() == pytest.approx(0.8, abs=0.03)
    other = masked.ids != ids
    assert (other[..., 0] <= (masked.chosen & ~masked.hidden)).all()
    assert (other.sum() / masked.chosen.sum()).item() == pytest.approx(0.1, abs=0.03)
    assert (masked.ids[other] < 1000).all()
    alone = mask(ids[:1, :1], torch.tensor([1]), 1000)
    assert alone.chosen.tolist() == [[True]]


def test_a_head_that_was_never_trained_does_not_count(masked_lm, encoder):
    assert load_general(str(masked_lm)).has_head
    assert not load_general(str(encoder)).has_head


def test_pretraining_in_bf16_follows_that_in_fp32(workspace, masked_lm, corpus):
    losses = [
        json.loads((pretrained(workspace, masked_lm, corpus, **given) / "history.jsonl").read_text())["loss"]
        for given in ({"model_name": "fp32"}, {"model_name": "bf16", "precision": "bf16"})
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]


@pytest.mark.slow
def test_a_general_student_goes_on_after_a_stop_and_any_task_starts_from_it(workspace, masked_lm, corpus):
    """Single sentences and pairs, and with adapters that it did not have."""
    given = {"student_arch": "recursive", "iterations": 2, "epochs": 3, "lr": 5e-3, "align_hidden": 1.0, "adapters": 0}
    given |= {"layer_map": ("0", "0")}
    whole = pretrained(workspace, masked_lm, corpus, **given)
    weights = (whole / "model.safetensors").read_bytes()
    scores = [json.loads(line)["score"] for line in (whole / "history.jsonl").read_text().splitlines()]
    assert scores[2] > scores[0]
    for stop in (5, 9):
        with stopped_in_step(stop):
            pretrained(workspace, masked_lm, corpus, **given, force=True)
    again = pretrained(workspace, masked_lm, corpus, **given, force=True)
    assert (again / "model.safetensors").read_bytes() == weights

    def started(task, **more):
        values = {**FROM_MINI, "lr": 1e-30, "cls_hidden_dim": 4, "weight_decay": 0.0, **more}
        return compressed(task=task, workspace=workspace, **values)

    for task, more in (("sst-2", {}), ("qqp", {"adapters": 3})):
        mine, there = (load_tensors(folder / "model.safetensors")[0] for folder in (started(task, **more), whole))
        for name, tensor in there.items():
            assert torch.allclose(mine[name][: len(tensor)], tensor, atol=1e-6), name
    for wrong, message in (
        ({"start_from": "nobody"}, "no model 'nobody'"),
        ({"heads": 3}, "--start-from mini: --heads is 2"),
        ({"student_arch": "transformer"}, "mini is a recursive"),
        ({"segments": False}, "--start-from mini: --segments is on; give the same"),
    ):
        with pytest.raises(UserError, match=message):
            started("sst-2", **wrong)


def of_teachers_shape(**more):
    """Settings of a student of one layer with the teacher's sizes, whose losses are DistilBERT's."""
    shape = {"embedding_dim": 16, "encoder_hidden_dim": 16, "heads": 2, "intermediate_dim": 32, "layers": 1}
    losses = {"masked_lm_weight": 2.0, "output_weight": 5.0, "output_temperature": 2.0, "align_last": 1.0}
    return {**shape, **losses, "hidden_loss": "cosine", "weight_decay": 0.0, **more}


def score_at_the_start(workspace, teacher, corpus, **given):
    """The mean loss over held-out texts, negated, of a student that does not move."""
    folder = pretrained(workspace, teacher, corpus, lr=1e-30, force=True, **of_teachers_shape(**given))
    return json.loads((folder / "history.jsonl").read_text())["score"]


@pytest.mark.slow
def test_a_student_of_the_teachers_layers_has_its_predictions_and_its_states(workspace, masked_lm, corpus):
    """Mask, head and embedding are the teacher's too; without segments, the first one's is in the positions."""
    nothing, layers = {"masked_lm_weight": 0.0}, {"init_from_teacher": ("every-other",)}
    started = functools.partial(score_at_the_start, workspace, masked_lm, corpus)
    assert started(**nothing) < -1
    for more in ({"segments": False}, {"sentence_order_weight": 1e-9}, {"next_sentence_weight": 1e-9}):
        assert started(**nothing, **layers, **more) == pytest.approx(0, abs=1e-5)
    kept = {"segments": False, "share": "attention", "model_name": "half", "layers": 2, "embedding_dim": 8}
    assert started(**kept, init_from_teacher=("0", "0")) < -0.1
    student = compressed(task="sst-2", workspace=workspace, **{**FROM_MINI, "start_from": "half"})
    assert {name: read_config(student).student[name] for name in ("share", "segments")} == {
        "share": "attention",
        "segments": False,
    }


@pytest.mark.parametrize("pairs", [False, True])
def test_the_losses_of_distilbert_and_albert_are_those_of_their_papers(masked_lm, corpus, pairs, tmp_path):
    """L = 5 T^2 KL(teacher / T || student / T) + 2 L_mlm + L_cos, and with pairs 3 times the cross-entropy of order."""
    more = {"sentence_order_weight": 3.0} if pairs else {}
    settings = CompressSettings(task="general", **of_teachers_shape(embedding_type="wordpiece", dropout=0.0, **more))
    teacher = load_general(str(masked_lm))
    vocabulary = vocabulary_of(teacher.tokenizer, "bert")
    student = settings.part(StudentSettings).model_copy(update={"vocab_size": len(vocabulary.pieces)})
    torch.manual_seed(1)
    masked = MaskedStudent(Student("transformer", student, 1, pairs), 16, 16, 4.0, pairs).eval()
    aligner = Aligner(
        settings,
        settings.student_arch,
        settings,
        AlignmentTeacher(teacher.model, vocabulary, torch.device("cpu")),
        settings.epochs,
    )
    texts = read_corpus([corpus], vocabulary.tokenizer(24), tmp_path / "ids")
    rows = divided(texts, vocabulary.whole) if pairs else EncodedRows(texts)
    batch = rows.batch(np.arange(5), torch.device("cpu"))

    torch.manual_seed(2)
    losses = pretraining_losses(settings, masked, aligner, draw(batch, settings.sentence_task, len(vocabulary.pieces)))
    torch.manual_seed(2)
    stays = None
    if pairs:
        batch, stays = changed(batch, "order")
        assert {0, 1} == set(stays.tolist())
    sentences = [mask(each.ids, each.lengths, len(vocabulary.pieces)) for each in batch.sentences]
    predicted, trace = masked(sentences)
    divergences, masked_losses, cosines = [], [], []
    for row in range(5):
        ids, at = [vocabulary.special_tokens[0]], []
        for number, each in enumerate(sentences):
            length = int(each.lengths[row])
            pieces = torch.from_numpy(vocabulary.rows)[each.ids[row, :length, 0]]
            at += [(number, step, len(ids) + step) for step in each.chosen[row, :length].nonzero()[:, 0].tolist()]
            ids += torch.where(each.hidden[row, :length], vocabulary.mask, pieces).tolist()
            ids.append(vocabulary.special_tokens[1])
        segments = [0] * len(ids)
        if pairs:
            segments = [int(place > sentences[0].lengths[row] + 1) for place in range(len(ids))]
        with torch.no_grad():
            theirs = teacher.model(
                input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]), output_hidden_states=True
            )
        for ours, his in zip(trace.hidden[-1][row, : len(ids)], theirs.hidden_states[-1][0], strict=True):
            cosines.append(1 - (ours @ his / ours.norm() / his.norm()).item())
        for number, step, place in at:
            # The student's logits come sentence by sentence, and in each row by row.
            order = [(n, r, s) for n, each in enumerate(sentences) for r, s in each.chosen.nonzero().tolist()]
            ours = predicted[order.index((number, row, step))]
            his = (theirs.logits[0, place][torch.from_numpy(vocabulary.rows)] / 2).softmax(-1)
            divergences.append((his * (his.log() - (ours / 2).log_softmax(-1))).sum().item())
            own = int((batch.sentences[number].ids)[row, step, 0])
            masked_losses.append(-ours.log_softmax(-1)[own].item())
    expected = 5 * 2**2 * np.mean(divergences) + 2 * np.mean(masked_losses) + np.mean(cosines)
    if stays is not None:
        logits = masked.pairs(trace.hidden[-1][:, 0]).log_softmax(-1)
        expected += 3 * np.mean([-logits[row, stay].item() for row, stay in enumerate(stays.tolist())])
        right = (logits.argmax(-1) == stays).float().mean()
        assert losses["sentence_accuracy"] == right
    assert losses["loss"].item() == pytest.approx(expected, rel=1e-4)
    assert losses["masked_loss"].item() == pytest.approx(np.mean(masked_losses), rel=1e-4)
    assert (
        losses["masked_accuracy"]
        == (predicted.argmax(-1) == torch.cat([each.targets for each in sentences])).float().mean()
    )
    assert len(divergences) == len(predicted)


@pytest.mark.slow
def test_the_order_of_sentences_is_learned_and_pairs_start_from_it(workspace, encoder, corpus):
    given = {"layers": 1, "sentence_order_weight": 1.0, "masked_lm_weight": 0.0}
    given |= {"epochs": 8, "patience": 8, "lr": 0.02, "batch_size": 8}
    folder = pretrained(workspace, encoder, corpus, **given)
    last = json.loads((folder / "history.jsonl").read_text().splitlines()[-1])
    assert last["score"] > -0.2  # by chance it is -0.69
    assert last["sentence_accuracy"] > 0.9
    student = compressed(task="qqp", workspace=workspace, **FROM_MINI, lr=1e-30, weight_decay=0.0)
    mine, there = (load_tensors(path / "model.safetensors")[0] for path in (student, folder))
    name = "encoder.positions.weight.value"  # of two texts
    assert torch.allclose(mine[name], there[name], atol=1e-6)


def test_a_teacher_without_a_head_teaches_its_states_alone(workspace, encoder, corpus):
    with pytest.raises(UserError, match="has no head that predicts masked pieces"):
        pretrained(workspace, encoder, corpus, output_weight=1.0)
    with pytest.raises(UserError, match="--output-temperature: tiny-bert has no head"):
        pretrained(workspace, encoder, corpus, output_temperature=2.0)
    assert read_config(pretrained(workspace, encoder, corpus, layers=1)).task == "general"


def test_pretraining_has_no_epochs_that_only_align(workspace, encoder, corpus):
    """As its loss has no part that could come later, such epochs are no part of its identity."""
    given = {"layers": 1, "align_hidden": 1.0}
    keys = {read_config(pretrained(workspace, encoder, corpus, **given, align_first=n)).key for n in (0, 1)}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"corpus": None}, "pretrain needs --corpus"),
        ({"corpus": "none.txt"}, "no such file or task"),
        ({"corpus": "mrpc"}, "not prepared yet; run: python preprocess.py --task mrpc"),
        ({"student_arch": "ffn", "embedding_type": "wordpiece"}, "a ffn has no layers"),
        ({"masked_lm_weight": 0.0, "output_weight": 0.0}, "every loss has weight 0"),
        ({"init_from_teacher": ("first",)}, "--init-from-teacher: hidden_size of bert is 16: set --hidden-dim 16"),
    ],
)
def test_what_cannot_be_pretrained_is_refused(tmp_path, masked_lm, corpus, wrong, message):
    with pytest.raises(UserError, match=message):
        pretrained(tmp_path / "workspace", masked_lm, **{"corpus": corpus, **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"teacher": None}, "pretrain needs --teacher"),
        ({"compression_actions": ("pretrain", "distill")}, "cannot be combined"),
        ({"sentence_order_weight": 1.0, "next_sentence_weight": 1.0}, "exclude each other"),
        (
            {"next_sentence_weight": 1.0, "batch_size": 1},
            "takes the other texts from the batch: --batch-size 1 has none",
        ),
    ],
)
def test_settings_that_contradict_pretraining_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        CompressSettings(**{"task": "general", "compression_actions": ["pretrain"], "teacher": "minilm", **wrong})


def test_a_general_student_that_has_read_a_task_is_not_scored_on_one_of_the_same_text(workspace, encoder):
    folder = pretrained(workspace, encoder, "sst-2")
    assert read_config(folder).trained_on == ("sst-2",)
    paths, config = Workspace(workspace), read_config(folder)
    with pytest.raises(UserError, match="sst-2"):
        find_general(paths, "mini", config.arch, build(StudentSettings, config.student), load_task("rotten-tomatoes"))
    student = compressed(task="qqp", workspace=workspace, **FROM_MINI)
    assert read_config(student).trained_on == ("qqp", "sst-2")


def test_a_general_student_has_seen_its_teachers_tasks(workspace, corpus):
    folder = pretrained(
        workspace, workspace / "models/sst-2/tiny-bert", corpus, output_weight=0.0, align_hidden=1.0, layers=1
    )
    assert read_config(folder).trained_on == ("sst-2",)


def test_a_text_file_named_as_a_task_is_text(workspace, encoder, corpus, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    assert read_config(pretrained(workspace.absolute(), encoder, corpus.rename("qqp").name)).trained_on == ()


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.TSV", "rows.json", "rows.jsonl", "rows.ndjson"])
def test_a_file_of_rows_with_labels_is_no_corpus(tmp_path, masked_lm, name):
    (tmp_path / name).write_bytes(b"text,label")
    with pytest.raises(UserError, match="give a text file with one text a line, or a task, by its name or YAML file"):
        pretrained(tmp_path / "workspace", masked_lm, tmp_path / name)


def test_a_yaml_file_is_a_task_of_ones_own_and_is_seen(tmp_path, masked_lm):
    task, paths = own_task(tmp_path / "mine", labelled_rows()), Workspace(tmp_path / "workspace")
    with pytest.raises(UserError, match=r"mine\.yaml: not prepared yet; run: python preprocess.py --task .*mine\.yaml"):
        pretrained(paths.root, masked_lm, task.file)
    prepare(paths, task, None, seed=1)
    folder = pretrained(paths.root, masked_lm, task.file, layers=1)
    assert read_config(folder).trained_on == ("mine",)
    assert read_manifest(folder).inputs["corpus 0"] == artifact_at(paths.splits("mine")).key
    assert corpus_files([task.file], paths) == [paths.split("mine", "train")]
    other = own_task(tmp_path / "other", labelled_rows())
    with pytest.raises(UserError, match="the workspace's data of mine were prepared from"):
        corpus_files([other.file], paths)
    with pytest.raises(UserError, match=r"none\.yaml"):
        corpus_files([str(tmp_path / "none.yaml")], paths)


def test_a_distilbert_is_aligned_with(tmp_path, corpus):
    """Its config.json has other names of sizes than BERT's."""
    teacher = tiny.write_masked_lm(tmp_path / "distilbert", "distilbert")
    with pytest.raises(UserError, match="--align-attention needs as many heads as distilbert has: give --heads"):
        pretrained(tmp_path / "workspace", teacher, corpus, align_attention=1.0, layers=1, **{**SHAPE, "heads": 3})
    folder = pretrained(tmp_path / "workspace", teacher, corpus, align_hidden=1.0, layers=1)
    assert read_config(folder).teacher == "distilbert"


def test_layers_of_another_activation_are_not_copied(tmp_path, masked_lm, corpus):
    teacher = tmp_path / "relu"
    shutil.copytree(masked_lm, teacher)
    config = teacher / "config.json"
    config.write_text(config.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "relu"'))
    sizes = {"encoder_hidden_dim": 16, "embedding_dim": 16, "intermediate_dim": 32}
    with pytest.raises(UserError, match="the activation of relu is relu, a student's is gelu"):
        pretrained(tmp_path / "w", teacher, corpus, **{**SHAPE, **sizes}, init_from_teacher=("first",), layers=1)
