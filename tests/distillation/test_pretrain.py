"""General distillation: pieces are masked as by BERT, predictions are learned, any task starts from the result."""

import json

import numpy as np
import pytest
import tiny
import torch
from stops import stopped_in_step

from common.config import build
from common.data.split import ROW_GROUP_ROWS, Split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.huggingface.general import load_general
from common.training.checkpoint import load_tensors
from common.training.models import read_config
from compression.distillation.corpus import read_corpus
from compression.distillation.masking import mask
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings, defaults_for
from compression.students.init import find_general
from compression.students.settings import StudentSettings
from compression.tokenizers.wordpiece import WordPieceTokenizer

FROM_MINI = {"start_from": "mini", "only_original_data": True, "alpha": 1.0}
SHAPE = {"embedding_dim": 8, "encoder_hidden_dim": 12, "heads": 2, "intermediate_dim": 16, "max_tokens": 24}


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    return tiny.write_masked_lm(tmp_path_factory.mktemp("lm") / "bert")


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
    values = {"compression_actions": ("pretrain",), "teacher": str(teacher), "corpus": corpus and str(corpus)}
    return compressed(**values, workspace=workspace, **{"model_name": "mini", "dropout": 0.0, **SHAPE, **given})


TOKENIZER = WordPieceTokenizer(["[UNK]", "a"], True, 5)


def test_a_corpus_is_read_line_by_line_in_windows_of_max_tokens(tmp_path):
    lines = ["a" + " a" * more for more in (2, 6, 0, 9)]
    (tmp_path / "some.txt").write_text("\n\n".join(lines))
    assert read_corpus(tmp_path / "some.txt", TOKENIZER).lengths.tolist() == [3, 5, 2, 1, 5, 5]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n \n", "there is no text"), (b"fine\na \xff b\n", r"line 2: not UTF-8 text")],
)
def test_a_corpus_without_text_is_refused(tmp_path, content, message):
    (tmp_path / "some.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_corpus(tmp_path / "some.txt", TOKENIZER)


def test_a_tasks_rows_are_read_to_the_last_one(tmp_path):
    numbers = np.arange(ROW_GROUP_ROWS + 1)  # two row groups
    write_split(tmp_path / "train.parquet", Split(["a a"] * len(numbers), None, numbers, numbers), {})
    assert len(read_corpus(tmp_path / "train.parquet", TOKENIZER)) == len(numbers)


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
    ):
        with pytest.raises(UserError, match=message):
            started("sst-2", **wrong)


def test_a_teacher_without_a_head_teaches_its_states_alone(workspace, encoder, corpus):
    with pytest.raises(UserError, match="has no head that predicts masked pieces"):
        pretrained(workspace, encoder, corpus, output_weight=1.0)
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
        ({"corpus": "none.txt"}, "no such file, and no task"),
        ({"corpus": "mrpc"}, "not prepared yet; run: python preprocess.py --task mrpc"),
        ({"student_arch": "ffn", "embedding_type": "wordpiece"}, "a ffn has no layers"),
        ({"masked_lm_weight": 0.0, "output_weight": 0.0}, "every loss has a weight of 0"),
    ],
)
def test_what_cannot_be_pretrained_is_refused(tmp_path, masked_lm, corpus, wrong, message):
    with pytest.raises(UserError, match=message):
        pretrained(tmp_path / "workspace", masked_lm, **{"corpus": corpus, **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"teacher": None}, "pretrain needs --teacher"),
        ({"compression_actions": ("pretrain", "distill")}, "stands alone"),
        ({"start_from": "mini"}, "starts from random weights"),
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
