"""Question answering through a whole experiment: its report, its commands, comparisons, and every form of a student."""

import dataclasses
import subprocess

import numpy as np
import pytest
import tiny
import tiny_questions
import torch
import yaml

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import read_config
from compression.analysis.attention import attention_maps
from compression.experiments.commands import commands_to_try
from compression.experiments.compare import CompareSettings, compare
from compression.experiments.jobs import plan_file
from compression.experiments.run import run
from compression.runtime import load
from compression.shrinking.chain import compress
from compression.shrinking.pruning.vocabulary import row_uses
from compression.students.saved import load_student
from compression.students.scoring import encode_split

pytestmark = pytest.mark.slow
SIZES = {"embedding_dim": 8, "encoder_hidden_dim": 8, "cls_hidden_dim": 8, "vocab_size": 120, "epochs": 2}


@dataclasses.dataclass(frozen=True)
class Answering:
    """An experiment of two seeds on a tiny task of questions, and its rows."""

    paths: Workspace
    task: str
    rows: list

    def built(self, **given):
        settings = {"workspace": self.paths.root, "task": self.task, "student_arch": "bilstm", **STUDENT, **given}
        return compress(tiny.compress_settings(**tiny.small(**{**SIZES, **settings})))


STUDENT = {"pair_encoder": "align", "embedding_type": "bpe", "only_original_data": True, "max_tokens": 80}


@pytest.fixture(scope="module")
def answering(tmp_path_factory, encoder):
    folder = tmp_path_factory.mktemp("answering")
    task = str(tiny_questions.write_task(folder / "files", 60))
    student = {**STUDENT, "embedding_init": "teacher", "compression_actions": ["distill", "quantize", "pack"]}
    jobs = [
        {"preprocess": None},
        {"finetune": {"arch": str(encoder), "max_epochs": 1, "max_tokens": 64}},
        {"preprocess": {"generate_loss": ["processed"]}},
        {"compress": {**student, **SIZES, "loss": "kl", "temperature": 1.0, "tune_epochs": 0}},
        {"evaluate": None},
    ]
    settings = {"task": task, "workspace": str(folder / "w"), "cpu": True, "loadbar": False}
    about = {"name": "answers", "seeds": [1, 2], "settings": settings, "jobs": jobs}
    (folder / "e.yaml").write_text(yaml.safe_dump(about))
    rows, _ = run(plan_file(folder / "e.yaml", []))
    return Answering(Workspace(folder / "w"), task, rows)


def test_an_experiment_ends_with_its_results_and_a_report(answering):
    report = (answering.paths.experiment("answers") / "report.md").read_text()
    assert "Answer F1" in report
    assert {row["student_arch"] for row in answering.rows} >= {"bilstm"}
    assert all(0 <= row["metrics"]["answer_f1"] <= 1 for row in answering.rows)


def test_the_commands_to_try_give_an_answer(answering):
    commands = commands_to_try(answering.paths, answering.task, answering.rows)
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            f"{command} --task {answering.task}" if "predict.py" in command else command,
            shell=True, cwd=tiny.ROOT, capture_output=True, text=True, input="how ?\tit is fine\n", check=True,
        )  # fmt: skip
        assert done.stdout.strip()


def test_families_are_compared_without_the_tests_of_rows(answering):
    names = sorted({row["model"] for row in answering.rows if row["student_arch"] == "bilstm"})
    distilled = next(name for name in names if name.endswith("-s1"))
    found = compare(CompareSettings(workspace=answering.paths.root), distilled, f"{distilled}+q")
    assert found.lines[0].effects[0].metric == "answer_f1"
    assert any("rows do not have one label each" in note for note in found.notes)


def test_the_teachers_attention_over_a_question_and_its_context(answering):
    folder = answering.paths.model("films", "tiny-bert")
    (teacher,) = attention_maps(folder, read_config(folder), ("how is it ?", "it is fine ."), True)
    assert teacher.tokens[0] == "[CLS]"
    assert teacher.maps.shape[-1] == len(teacher.tokens)


@pytest.mark.parametrize("arch", ["bilstm", "conv"])
def test_students_are_pruned_and_factorized(answering, arch):
    given = {"student_arch": arch, "alpha": 1.0, "tune_epochs": 0, "rank": 3, "prune_units": 0.5}
    actions = ("distill", "factorize", "prune", "pack")
    *_, pruned = answering.built(**given, prune_vocabulary=2, compression_actions=actions)
    student, tokenizer, _ = load_student(pruned, torch.device("cpu"))
    task = load_task(answering.task)
    train, test = (load_split(answering.paths, task, name) for name in ("train", "test"))
    read = encode_split(tokenizer, train)
    uses = row_uses(student, np.concatenate([read.text.ids, read.second.ids]))["embedding.table.weight"]
    assert len(uses) == tokenizer.vocab_size < SIZES["vocab_size"]
    assert uses[3:].min() >= 2  # behind the unknown piece and two control signs
    questions = list(zip(test.sentence1, test.sentence2, strict=True))
    assert load(answering.paths.packed("films", pruned.name)).logits(questions[:3]).shape[2] == 2


def test_symmetric_is_refused(answering):
    with pytest.raises(UserError, match="--symmetric: the question and the context of films cannot be exchanged"):
        answering.built(symmetric=True, compression_actions=("distill",), model_name="s")
