"""A teacher may be a file: answers of any model, matched by the texts and checked, and logits of another workspace."""

import math

import numpy as np
import pytest
import tiny
from answer_files import GOOD, RNG, answers, exported, imported, prepared_task, random_logits, write
from own_task import NAMES

from common.config import parse_flags
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import artifact_at
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.teachers.logits_file import read_description
from common.teachers.settings import FinetuneSettings
from common.training.models import only_teacher, read_config
from compression.augmentation.preprocess import preprocess
from compression.augmentation.settings import PreprocessSettings
from compression.distillation.distill import distill
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("kind", ["labels", "pairs", "multilabel"])
def test_logits_are_matched_by_the_texts_and_come_back_exactly(tmp_path, kind, suffix):
    paths, task = prepared_task(tmp_path, kind)
    logits = random_logits(paths, task)
    row = {f"logit_{label}": logits[:, i] for i, label in enumerate(task.labels)}
    given = answers(paths, task, lambda i: {name: float(values[i]) for name, values in row.items()})
    done = imported(paths, task, write(tmp_path / f"answers{suffix}", given))
    assert done == {"--generate-loss processed": len(logits)}
    assert np.array_equal(load_logits(paths, task, "api", "train"), logits.astype(np.float32))

    file = exported(paths, task, tmp_path / "api.parquet")
    imported(paths, task, file, "copy")
    assert np.array_equal(load_logits(paths, task, "copy", "train"), logits.astype(np.float32))


def test_tags_come_back_exactly_and_are_sure(tmp_path):
    paths, task = prepared_task(tmp_path, "tags")
    tags = load_split(paths, task, "train").labels
    given = answers(paths, task, lambda i: {"predicted_tags": [task.labels[j] for j in tags[i] if j >= 0]})
    imported(paths, task, write(tmp_path / "answers.jsonl", given))
    logits = load_logits(paths, task, "api", "train")
    assert np.array_equal(np.where(np.isnan(logits[..., 0]), -1, logits.argmax(-1)), tags)

    imported(paths, task, exported(paths, task, tmp_path / "api.parquet"), "copy")
    rounded = logits.astype(np.float16).astype(np.float32)
    assert np.array_equal(load_logits(paths, task, "copy", "train"), rounded, equal_nan=True)


def test_tags_of_another_number_of_words_are_refused(tmp_path):
    paths, task = prepared_task(tmp_path, "tags")
    given = answers(paths, task, lambda i: {"label": "O O"})
    with pytest.raises(UserError, match=r"answers\.csv line 2: 2 tags for \d+ words$"):
        imported(paths, task, write(tmp_path / "answers.csv", given))


def test_scores_are_scaled_as_a_teachers(tmp_path):
    paths, task = prepared_task(tmp_path, "numbers")
    labels = load_split(paths, task, "train").labels
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda i: {"verdict": labels[i]})))
    assert np.allclose(load_logits(paths, task, "api", "train")[:, 0], (labels - 1) / 3)
    with pytest.raises(UserError, match="5 is not a number from 1 to 4"):
        imported(paths, task, write(tmp_path / "b.csv", answers(paths, task, lambda i: {"verdict": 5})))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_probabilities_become_logits_with_that_softmax(tmp_path, suffix):
    paths, task = prepared_task(tmp_path)
    up = RNG.uniform(0.01, 0.99, len(load_split(paths, task, "train"))).round(3)
    up[:2] = 0, 1

    def of(i):
        values = dict(zip(NAMES, (1 - up[i], up[i]), strict=True))
        flat = {f"probability_{label}": value for label, value in values.items()}
        return {"predicted_label": NAMES[0], **({"probabilities": values} if suffix == ".jsonl" else flat)}

    imported(paths, task, write(tmp_path / f"answers{suffix}", answers(paths, task, of)))
    logits = load_logits(paths, task, "api", "train")
    softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.allclose(softmax[2:, 1], up[2:], atol=1e-6)
    assert np.allclose(softmax[:2, 1], [0.001, 0.999], atol=1e-5)
    assert np.allclose(logits.sum(1), 0, atol=1e-6)


@pytest.mark.parametrize("column", ["label", "verdict", "predicted_label"])
def test_labels_alone_can_teach(tmp_path, column):
    paths, task = prepared_task(tmp_path)
    labels = load_split(paths, task, "train").labels
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda i: {column: NAMES[labels[i]]})))
    logits = load_logits(paths, task, "api", "train")
    assert np.array_equal(logits.argmax(1), labels)
    assert np.allclose(np.abs(logits), math.log(1000) / 2, atol=1e-5)


def test_sets_of_labels_can_teach(tmp_path):
    paths, task = prepared_task(tmp_path, "multilabel")
    wanted = load_split(paths, task, "train").labels
    sets = [[label for label, has in zip(task.labels, row, strict=True) if has] for row in wanted]
    for file, of in (("a.jsonl", lambda i: {"label": sets[i]}), ("a.csv", lambda i: {"label": "|".join(sets[i])})):
        imported(paths, task, write(tmp_path / file, answers(paths, task, of)), file[2:])
        assert np.array_equal(load_logits(paths, task, file[2:], "train") > 0, wanted == 1)


TEXT = {"sentence1": "a fine film"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"logit_thumbs down": "nan", "logit_thumbs up": 1}, r"line 2: not a number: 'nan'$"),
        ({"logit_thumbs down": "much", "logit_thumbs up": 1}, r"line 2: not a number: 'much'$"),
        ({"logit_thumbs down": 1e6, "logit_thumbs up": 1}, r"line 2: a logit has magnitude 1e\+06; the limit is"),
        ({"logit_thumbs down": 1}, r"column 'logit_thumbs up' is missing; mine has the labels thumbs down, thumbs up$"),
        ({**GOOD, "logit_sideways": 1}, r"column 'logit_sideways' belongs to no label; mine has"),
        ({"probability_thumbs down": 0.7, "probability_thumbs up": 0.7}, r"the probabilities sum to 1\.4, not to 1$"),
        ({"probability_thumbs down": -0.5, "probability_thumbs up": 1.5}, r"line 2: -0\.5 is not a probability$"),
        ({"label": "sideways"}, r"line 2: unknown label 'sideways'; expected thumbs down, thumbs up"),
        ({"label": ""}, r"line 2: unknown label ''"),
        ({"stars": 3}, r"has no column of answers; expected logit_thumbs down \.\.\. or probability_thumbs down"),
    ],
)
def test_a_wrong_answer_is_one_line_and_changes_nothing(tmp_path, wrong, message):
    paths, task = prepared_task(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        imported(paths, task, write(tmp_path / "answers.csv", [TEXT | wrong]))
    assert "\n" not in str(error.value)
    assert not paths.model("mine", "api").exists()
    assert not paths.logits("mine", "api", "train").exists()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            {"thumbs up": 1.0},
            "line 1: expected an object with the keys thumbs down, thumbs up, found {'thumbs up': 1.0}",
        ),
        ([0.5, 0.5], "line 1: expected an object"),
        ({"thumbs up": True, "thumbs down": 0}, "line 1: not a number: 'True'"),
        ({"thumbs up": [], "thumbs down": 0}, "line 1: not a number"),
    ],
)
def test_wrong_objects_are_refused(tmp_path, cell, message):
    paths, task = prepared_task(tmp_path)
    with pytest.raises(UserError, match=message):
        imported(paths, task, write(tmp_path / "answers.jsonl", [TEXT | {"probabilities": cell}]))


def test_missing_texts_are_counted_and_named(tmp_path):
    paths, task = prepared_task(tmp_path)
    train = load_split(paths, task, "train")
    given = [each | GOOD for each in answers(paths, task, lambda i: {}) if each["sentence1"] != train.sentence1[3]]
    missing = train.sentence1.count(train.sentence1[3])
    with pytest.raises(UserError) as error:
        imported(paths, task, write(tmp_path / "answers.csv", given))
    start = f"no answer for {missing} of the {len(train)} rows of train, such as {train.sentence1[3][:60]!r}"
    assert str(error.value).endswith(start)


def test_texts_may_be_spaced_otherwise_repeated_and_more_than_needed(tmp_path):
    paths, task = prepared_task(tmp_path)
    given = answers(paths, task, lambda i: GOOD)
    spaced = [each | {"sentence1": f"  {each['sentence1'].replace(' ', '   ')} "} for each in given]
    imported(paths, task, write(tmp_path / "answers.csv", [*given, TEXT | GOOD, *spaced]))
    assert np.array_equal(np.unique(load_logits(paths, task, "api", "train"), axis=0), [[0.5, 1]])


def test_contradictions_are_named(tmp_path):
    paths, task = prepared_task(tmp_path)
    given = answers(paths, task, lambda i: GOOD)
    given.append(given[0] | {"logit_thumbs up": 2})
    with pytest.raises(UserError, match=rf"line {len(given) + 1}: the answer differs from that in line 2 for"):
        imported(paths, task, write(tmp_path / "answers.csv", given))


@pytest.mark.parametrize("name", ["answers.txt", "answers.xlsx", "missing.csv"])
def test_other_files_are_refused(tmp_path, name):
    paths, task = prepared_task(tmp_path)
    if "missing" not in name:
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=r"unknown kind of file|no such file"):
        imported(paths, task, tmp_path / name)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(UserError, match=r"no column 'review' of texts \(found an empty file\)"):
        imported(paths, task, tmp_path / "empty.csv")


def test_an_imported_teacher_is_found_but_not_run(tmp_path):
    paths, task = prepared_task(tmp_path)
    file = write(tmp_path / "a.csv", answers(paths, task, lambda i: GOOD))
    imported(paths, task, file)
    assert only_teacher(paths, task) == "api"
    assert read_config(paths.model("mine", "api")).imported
    about = {"task": task.argument, "workspace": paths.root, "model_name": "api", "cpu": True, "loadbar": False}
    with pytest.raises(UserError, match="--generate-loss test --logits-from FILE"):
        evaluate(EvaluateSettings(**about))
    with pytest.raises(UserError, match="--generate-loss test --logits-from FILE"):
        preprocess(tiny.prepare_settings(paths.root, task.argument, generate_loss=("test",)))


def test_an_ensemble_of_imported_teachers_is_exported_without_sizes(tmp_path):
    paths, task = prepared_task(tmp_path)
    file = write(tmp_path / "a.csv", answers(paths, task, lambda i: GOOD))
    for name in ("a", "b"):
        imported(paths, task, file, name)
    about = {"task": task.argument, "workspace": paths.root, "loadbar": False}
    finetune(FinetuneSettings(**about, ensemble=("a", "b")))
    whole = exported(paths, task, tmp_path / "both.parquet", "ensemble")
    assert read_description(whole).sizes == {}
    imported(paths, task, whole, "copy")
    assert np.array_equal(load_logits(paths, task, "copy", "train"), load_logits(paths, task, "a", "train"))
    with pytest.raises(UserError, match=r"^ensemble: its member a was imported as logits: there is no model to run"):
        evaluate(EvaluateSettings(**about, model_name="ensemble", cpu=True))


def test_the_same_file_gives_the_same_key_and_another_another(tmp_path):
    paths, task = prepared_task(tmp_path)
    file, keys = tmp_path / "a.csv", []
    for up in (1, 1, 2):
        write(file, sorted(answers(paths, task, lambda i, up=up: GOOD | {"logit_thumbs up": up}), key=str))
        imported(paths, task, file)
        keys.append(artifact_at(paths.logits("mine", "api", "train")).key)
    assert keys[0] == keys[1] != keys[2]


def test_augmented_rows_have_logits_too_and_a_student_learns_from_them(workspace, tmp_path):
    paths, task, rows = Workspace(workspace), load_task("sst-2"), ("processed", "tinybert")
    file = exported(paths, task, tmp_path / "{task}-bert.parquet", "tiny-bert", rows)
    assert (tmp_path / "sst-2-bert.parquet").is_file()
    own = [load_logits(paths, task, "tiny-bert", name) for name in ("train", "tinybert")]
    with pytest.raises(UserError, match="tiny-bert is already a model of sst-2; give the imported logits another"):
        imported(paths, task, file, "tiny-bert", rows)
    imported(paths, task, file, "copy", rows)
    for name, logits in zip(("train", "tinybert"), own, strict=True):
        assert np.array_equal(load_logits(paths, task, "copy", name), logits.astype(np.float16).astype(np.float32))
    about = tiny.small(student_arch="ffn", embedding_type="hash", epochs=1, teacher="copy")
    student = distill(tiny.compress_settings(task="sst-2", workspace=workspace, **about))
    assert read_config(student).teacher == "copy"


def test_a_path_without_a_task_is_refused():
    with pytest.raises(UserError, match=r"^--task is required$"):
        parse_flags(PreprocessSettings, ["--generate-loss", "processed", "--logits-to", "a.parquet"], "test")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--logits-from a.csv", "--logits-from has no effect without --generate-loss"),
        ("--logits-to a.parquet", "--logits-to has no effect without --generate-loss"),
        ("--generate-loss processed --logits-from a.csv", "--logits-from needs --model-name"),
        ("--generate-loss processed --logits-to a.csv", "give it the suffix .parquet"),
        ("--generate-loss processed --logits-to a.parquet --logits-from b.csv", "exclude each other"),
        (
            "--generate-loss processed --logits-from a.csv --model-name m --precision fp32",
            "--precision has no effect without --generate-loss, or with --logits-from",
        ),
    ],
)
def test_flags_without_effect_are_refused(words, message):
    with pytest.raises(UserError, match=message):
        parse_flags(PreprocessSettings, ["--task", "sst-2", *words.split()], "test")
