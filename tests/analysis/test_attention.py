"""Attention maps: of a student that is its teacher they are its teacher's."""

import json
import shutil

import numpy as np
import pytest
import roberta_teachers
import tiny
import torch

from common.config import build
from common.errors import UserError
from common.store.artifact import Action
from common.training.models import read_config
from compression.analysis.analyze import analyze
from compression.analysis.attention import attention_figure, attention_maps
from compression.analysis.settings import AnalyzeSettings
from compression.students.init import start_from_teacher
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary
from compression.tokenizers.unlearned import CharTokenizer


@pytest.fixture
def student(workspace):
    """A student with all of its teacher's layers."""
    return first_layers(workspace / "models/sst-2/tiny-bert", 1)


def first_layers(teacher, depth, **facts):
    """Save a student that is the first layers of a teacher next to it. Returns its folder."""
    config = json.loads((teacher / "huggingface/config.json").read_text())
    tokenizer, width = teacher_vocabulary(teacher).tokenizer(60), config["hidden_size"]
    sizes = {"embedding_dim": width, "encoder_hidden_dim": width, "vocab_size": tokenizer.vocab_size, "layers": depth}
    sizes |= {"heads": config["num_attention_heads"], "intermediate_dim": config["intermediate_size"]}
    settings = StudentSettings(embedding_type="wordpiece", max_tokens=60, cls_hidden_dim=5, **sizes)
    built = Student("transformer", settings, 2, pair=False)
    start_from_teacher(built, settings, range(depth), teacher)
    facts |= {"arch": "transformer", "teacher": teacher.name, "student": settings.model_dump(mode="json")}
    return tiny.save_student(teacher.parent / "s", built, tokenizer, **facts)


def test_a_student_is_shown_next_to_its_teacher(student):
    theirs, own = attention_maps(student, read_config(student), ["a  good film ."], cpu=True)
    assert (theirs.name, own.name) == ("tiny-bert", "s")
    assert own.tokens == ["[first]", *theirs.tokens[1:-1], "[separator]"]
    assert theirs.layers == own.layers == list(range(1, len(own.maps) + 1))
    assert own.maps.shape[2:] == (len(own.tokens),) * 2
    np.testing.assert_allclose(own.maps, theirs.maps, atol=1e-5)
    np.testing.assert_allclose(own.maps.sum(-1), 1, atol=1e-5)
    figure = attention_figure([theirs, own])
    titles = [axes.get_title() for axes in figure.get_axes()]
    assert len(titles) == 2 * len(own.layers) * min(4, own.maps.shape[1])
    assert titles[0] == "layer 1, head 1"


# With "1 0", the second of the student's layers was removed after it was distilled.
@pytest.mark.parametrize(("layer_map", "layer"), [("uniform", 2), ("0", 1), ("1 0", 2)])
def test_the_teachers_layers_are_those_of_the_layer_map(tmp_path, layer_map, layer):
    student = first_layers(roberta_teachers.write_teacher(tmp_path / "models/sst-2/two-layers"), 1)
    actions = (Action(kind="distill", settings={"layer_map": layer_map.split()}),)
    config = read_config(student).model_copy(update={"actions": actions})
    theirs, own = attention_maps(student, config, ["a good film"], cpu=True)
    assert (theirs.layers, own.layers) == ([layer], [1])


def test_a_teacher_without_maps_is_named(student, workspace, capsys):
    shutil.rmtree(workspace / "models/sst-2/tiny-bert/huggingface")
    (own,) = attention_maps(student, read_config(student), ["a good film"], cpu=True)
    assert own.name == "s"
    assert capsys.readouterr().err.startswith("tiny-bert: not shown")


def test_pictures_are_written(student, workspace):
    about = {"task": "sst-2", "workspace": workspace, "cpu": True, "attention": "a good film"}
    for name in ("s", "tiny-bert"):
        result = analyze(build(AnalyzeSettings, {**about, "model_name": name, "out": workspace / name}))
        assert result["attention"] == [str(workspace / name / "attention.png")]
        assert (workspace / name / "attention.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "b"], "--attention: s reads one text, not 2"),
        (["film " * 60], "--attention: 62 tokens for s; a picture shows at most 50"),
    ],
)
def test_texts_that_cannot_be_drawn_are_refused(student, texts, message):
    with pytest.raises(UserError, match=message):
        attention_maps(student, read_config(student), texts, cpu=True)


def test_other_students_have_none(student, workspace):
    settings = StudentSettings(embedding_type="char", embedding_dim=4, encoder_hidden_dim=3, cls_hidden_dim=5)
    torch.manual_seed(0)
    other = tiny.save_student(
        workspace / "models/sst-2/ffn", Student("ffn", settings, 2, False), CharTokenizer(60), arch="ffn"
    )
    with pytest.raises(UserError, match="ffn is a ffn, which has no attention maps"):
        attention_maps(other, read_config(other), ["a"], cpu=True)
