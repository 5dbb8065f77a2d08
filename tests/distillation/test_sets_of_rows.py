"""What a student learns from: several sets of augmented rows, and those of which the teacher is certain."""

import itertools

import numpy as np
import pytest
import tiny
from learned_rows import distillation_set, distillation_text
from shrunk import compressed

from common.data.split import load_split
from common.data.tasks import load_task
from common.store.artifact import artifact_at, read_manifest
from common.store.workspace import Workspace
from common.teachers.logits import load_logits
from common.training.models import read_config
from compression.augmentation.label_shift import recorded_labels
from compression.augmentation.preprocess import preprocess
from compression.tokenizers.bpe_files import find_files

QQP = load_task("qqp")
SETS = ("tinybert", "neighbours", "file")


@pytest.fixture
def several(workspace, tmp_path):
    """A workspace of QQP with three sets of augmented rows and the teacher's logits over each."""
    file = tiny.write_tsv(tmp_path / "more.tsv", ["question1", "question2"], [[f"a{i} film", "b"] for i in range(30)])
    given = {"precision": "fp32", "generate_loss": ("augmented",), "model_name": "tiny-bert"}
    preprocess(tiny.prepare_settings(workspace, "qqp", augment="neighbours", partners=2, **given))
    preprocess(tiny.prepare_settings(workspace, "qqp", augment="file", augment_file=file, **given))
    return workspace


def settings_of(workspace, **given):
    return tiny.compress_settings(task="qqp", workspace=workspace, teacher="tiny-bert", **tiny.small(**given))


def test_sets_of_rows_follow_each_other_with_the_teachers_choices(several):
    paths = Workspace(several)
    rows = distillation_set(settings_of(several, augmented=("neighbours", "file", "neighbours")), QQP)
    parts = [load_split(paths, QQP, name) for name in ("train", "neighbours", "file")]
    assert rows.split.sentence2 == [text for part in parts for text in part.sentence2]
    logits = np.concatenate([load_logits(paths, QQP, "tiny-bert", name) for name in ("train", "neighbours", "file")])
    assert (rows.logits == logits).all()
    own = len(parts[0])
    assert (rows.split.labels[:own] == parts[0].labels).all()
    assert (rows.split.labels[own:] == logits[own:].argmax(1)).all()


def test_a_share_of_train_keeps_the_augmented_rows_made_from_it_and_those_without_a_source(several):
    text, rows = distillation_text(settings_of(several, augmented=SETS, downsample_data=0.5), QQP)
    train = load_split(Workspace(several), QQP, "train")
    drawn = set(itertools.chain(*train.take(rows["train"]).sentences()))
    others = set(itertools.chain(*train.sentences())) - drawn
    assert others
    assert others.isdisjoint(itertools.chain(*text.sentences()))
    for name in SETS:
        split = load_split(Workspace(several), QQP, name)
        own = np.isin(split.source_rows, [-1, *rows["train"]])
        known = [bool(others & {*pair}) for pair in zip(split.sentence1, split.sentence2, strict=True)]
        assert rows[name].tolist() == np.flatnonzero(own & ~np.array(known)).tolist()
    assert len(rows["file"]) == 30
    assert 0 < len(rows["neighbours"]) < len(load_split(Workspace(several), QQP, "neighbours"))


def test_byte_pairs_and_their_vectors_are_trained_on_the_drawn_rows_alone(several):
    compressed(several, "distill", task="qqp", student_arch="ffn", embedding_type="bpe", downsample_data=0.5)
    rows, _ = distillation_text(settings_of(several, only_original_data=True, downsample_data=0.5), QQP)
    text = list(itertools.chain.from_iterable(rows.sentences()))
    folder = Workspace(several).cache() / "bpe"
    trained = set(folder.iterdir())
    find_files(60, 6, "train", text, folder, list(text))
    assert set(folder.iterdir()) == trained


def test_rows_of_which_the_teacher_is_less_certain_are_left_out(several, capsys):
    every = distillation_set(settings_of(several, augmented=SETS), QQP)
    own = len(load_split(Workspace(several), QQP, "train"))
    sure = QQP.kind.confidence(QQP, every.logits)
    least = float(np.median(sure[own:]))
    some = distillation_set(settings_of(several, augmented=SETS, min_confidence=least), QQP)
    kept = np.flatnonzero((np.arange(len(sure)) < own) | (sure >= least))
    assert own < len(kept) < len(sure)
    assert some.split.fingerprint() == every.split.take(kept).fingerprint()
    assert (some.logits == every.logits[kept]).all()
    left_out = f"{len(sure) - len(kept):,} of {len(sure) - own:,} augmented rows left out"
    assert left_out in capsys.readouterr().err


def test_a_student_depends_on_each_set_and_reports_them(several):
    given = {"task": "qqp", "student_arch": "ffn", "embedding_type": "hash", "teacher": "tiny-bert"}
    given |= {"only_original_data": False}
    (folder,) = compressed(several, "distill", **given, augmented=SETS, model_name="student")
    paths, manifest = Workspace(several), read_manifest(folder)
    for name in SETS:
        assert manifest.inputs[f"rows {name}"] == artifact_at(paths.augmented("qqp", name)).key
        assert manifest.inputs[f"logits {name}"] == artifact_at(paths.logits("qqp", "tiny-bert", name)).key
    assert read_config(folder).augmented
    pruned = {**given, "load_trained_model": "student", "augmented": SETS}
    (smaller,) = compressed(several, "prune", **pruned, prune_vocabulary=2)
    assert {f"rows {name}" for name in SETS} <= set(read_manifest(smaller).inputs)
    shares = {one.rows: one for one in recorded_labels(paths, {"qqp": "tiny-bert"}, SETS)}
    assert (shares["augmented: tinybert"].agreement or 0) > 0.5
    assert shares["augmented: neighbours"].agreement is None
    assert shares["augmented: file"].count == 30
    # Logits over other rows than there are now are left out.
    preprocess(tiny.prepare_settings(several, "qqp", augment="neighbours", partners=1))
    assert "augmented: neighbours" not in {one.rows for one in recorded_labels(paths, {"qqp": None}, SETS)}
