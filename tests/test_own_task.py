"""The user's own task through every stage: with gaps in its labels, and without any label."""

import numpy as np
import pytest
import tiny
from learned_rows import distillation_set, held_out_rows
from own_task import NAMES, WORLD, labelled_rows, own_task, write_csv, write_yaml
from stages import score_of

from common.data.prepare import prepare
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import distill
from compression.shrinking.chain import compress
from compression.students.embeddings import load_tokenizer
from compression.students.settings import StudentSettings

pytestmark = pytest.mark.slow


def settings_of(workspace, task, **given):
    return tiny.compress_settings(task=task, workspace=workspace, **tiny.small(**given))


@pytest.fixture(scope="module")
def own(tmp_path_factory, encoder, glove):
    """(workspace, task file): rows in part unlabelled, a fine-tuned teacher, augmented rows, logits over both."""
    folder = tmp_path_factory.mktemp("own")
    write_csv(folder / "rows.csv", labelled_rows(200, gaps=4))
    task = write_yaml(folder, {"all": "rows.csv"}, name="own")
    preprocess(tiny.prepare_settings(folder / "w", task))
    finetune(tiny.finetune_settings(folder / "w", task, encoder, max_epochs=4))
    stages = {"augment": "tinybert", "glove": glove, "variants": 2, "generate_loss": ("processed", "tinybert")}
    preprocess(tiny.prepare_settings(folder / "w", task, precision="fp32", **stages))
    return folder / "w", task


def test_the_users_csv_file_goes_through_every_stage(own):
    workspace, task = own
    actions = ("distill", "prune", "quantize")
    folders = compress(settings_of(workspace, task, epochs=6, student_arch="ffn", compression_actions=actions))
    assert [read_config(folder).stage for folder in folders] == ["distilled", "pruned", "quantized"]
    assert score_of(workspace, "tiny-bert", task)["metrics"]["accuracy"] > 0.6
    assert score_of(workspace, folders[0].name, task)["metrics"]["accuracy"] > 0.6
    assert score_of(workspace, folders[-1].name, task)["metrics"]["accuracy"] > 0.5


def test_rows_without_a_label_have_the_teachers_choice_and_are_left_out_without_one(own):
    workspace, task = own
    paths, definition = Workspace(workspace), load_task(task)
    train = load_split(paths, definition, "train")
    logits = load_logits(paths, definition, "tiny-bert", "train")
    assert 0 < train.labelled.sum() < len(train)
    for alpha in (0, 0.5, 1):
        rows = distillation_set(settings_of(workspace, task, alpha=alpha), definition)
        own_labels = rows.split.labels[: len(train)]
        assert (own_labels[train.labelled] == train.labels[train.labelled]).all()
        assert (own_labels[~train.labelled] == logits.argmax(1)[~train.labelled]).all()
        assert len(rows.logits) == len(rows.split)
    alone = distillation_set(settings_of(workspace, task, alpha=1, only_original_data=True), definition)
    assert alone.split.sentence1 == [train.sentence1[row] for row in np.flatnonzero(train.labelled)]
    assert alone.logits is None
    for alpha in (0.5, 1):
        only = {"alpha": alpha, "only_original_data": True, "student_arch": "ffn", "epochs": 1}
        assert distill(settings_of(workspace, task, **only)).exists()


def test_a_share_of_rows_is_the_same_on_every_run_and_takes_their_variants_along(own):
    workspace, task = own
    definition = load_task(task)
    whole = distillation_set(settings_of(workspace, task), definition)
    count = len(load_split(Workspace(workspace), definition, "train"))
    given = {"downsample_data": 0.5, "bootstrap_data_ratio": 0.5}
    first, second = (distillation_set(settings_of(workspace, task, **given), definition) for _ in range(2))
    assert first.split.fingerprint() == second.split.fingerprint()
    assert (first.logits == second.logits).all()
    half = round(count / 2)
    kept = {whole.split.sentence1.index(text) for text in first.split.sentence1[:half]}
    sources = whole.split.source_rows[count:]
    assert set(first.split.source_rows[half:]) <= kept
    assert len(first.split) - half == round(np.isin(sources, list(kept)).sum() / 2)
    all_variants = distillation_set(settings_of(workspace, task, downsample_data=0.5), definition)
    assert len(all_variants.split) - half == np.isin(sources, list(kept)).sum()
    other = tiny.compress_settings(task=task, workspace=workspace, **{**tiny.small(**given), "seed": 8})
    assert distillation_set(other, definition).split.fingerprint() != first.split.fingerprint()


def test_text_without_labels_and_a_teacher_as_it_is_make_a_student(own, glove, tmp_path):
    workspace, _ = own
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text, _ in tiny.sentences(160)))
    task = write_yaml(tmp_path, {"all": "lines.txt"}, name="lines", columns=None)
    preprocess(tiny.prepare_settings(workspace, task))
    folder = finetune(tiny.finetune_settings(workspace, task, "own/tiny-bert", as_is=True))
    assert read_config(folder).trained_on == ("own",)
    own_weights = workspace / "models/own/tiny-bert/huggingface/model.safetensors"
    assert (folder / "huggingface/model.safetensors").read_bytes() == own_weights.read_bytes()
    rows = ("processed", "tinybert", "validation", "test")
    stages = {"augment": "tinybert", "glove": glove, "variants": 2, "generate_loss": rows}
    preprocess(tiny.prepare_settings(workspace, task, precision="fp32", **stages))
    settings = settings_of(workspace, task, epochs=6, student_arch="ffn")
    held_out = held_out_rows(settings, load_task(task), "tiny-bert")
    assert held_out.labelled.all()
    student = distill(settings)
    assert score_of(workspace, student.name, task)["metrics"].keys() == {"agreement"}
    assert score_of(workspace, student.name, task)["metrics"]["agreement"] > 0.6
    assert score_of(workspace, "tiny-bert", task)["metrics"] in ({}, {"agreement": 1.0})
    with pytest.raises(UserError, match="no row of train has a label"):
        distill(settings_of(workspace, task, alpha=1, only_original_data=True))


@pytest.mark.parametrize("embedding", ["bpe", "hash", "char"])
def test_text_of_any_script_passes_through_tokenizers_and_report(tmp_path, embedding):
    rows = [(f"{text} {i}", NAMES[i % 2]) for i, text in enumerate(WORLD * 6)]
    task = own_task(tmp_path / "own", rows)
    splits = prepare(Workspace(tmp_path / "w"), task, None, seed=1)
    assert {text for split in splits.values() for text in split.sentence1} <= {text for text, _ in rows}
    given = {"only_original_data": True, "alpha": 1, "student_arch": "ffn", "embedding_type": embedding}
    folder = distill(settings_of(tmp_path / "w", task.file, vocab_size=150, **given))
    tokenizer = load_tokenizer(StudentSettings(**read_config(folder).student), folder)
    codes = [tokenizer.encode(text).ids.tolist() for text in WORLD]
    assert all(codes)
