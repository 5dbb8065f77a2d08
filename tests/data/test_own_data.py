"""The user's own task: any kind of file reads back as it was written, mistakes are named, no label is needed."""

import csv
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.overlap import duplicates
from common.data.prepare import prepare
from common.data.readers.cells import MAX_CHARACTERS
from common.data.readers.tables import read_source
from common.data.split import load_split, read_metadata, read_report, read_split
from common.data.tasks import load_task
from common.data.text import normalise
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.logits import load_logits
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.distillation.dataset import distillation_set, held_out_rows
from compression.distillation.distill import distill
from compression.evaluation.evaluate import EvaluateSettings, evaluate
from compression.experiments.chain import plan_file
from compression.settings import CompressSettings
from compression.shrinking.chain import compress
from compression.students.embeddings import load_tokenizer

NAMES = ("thumbs down", "thumbs up")
WORLD = [
    "שלום עולם, מה שלומך?",
    "مرحبا بالعالم",
    "great 👍🏽👨‍👩‍👧 !",
    "😀",
    "😡",
    "नमस्ते दुनिया",
    "❤",
    "☹",
    "日本語の文",
]
"""Right-to-left text, emoji made of several characters, text of nothing but symbols, combining vowels."""


def write_yaml(folder, files, name="mine", **changed):
    """The YAML file of a task with columns review and verdict."""
    columns = {"sentence1": "review", "label": "verdict"}
    task = {"name": name, "labels": list(NAMES), "columns": columns, "source": {"files": files}, **changed}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({key: value for key, value in task.items() if value is not None}))
    return str(path)


def write_csv(path, rows, header=("review", "verdict")):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_tsv(path, rows):
    lines = ["review\tverdict", *(f"{normalise(text)}\t{label}" for text, label in rows)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_jsonl(path, rows):
    lines = (json.dumps({"verdict": label, "review": text}, ensure_ascii=len(text) % 2 == 0) for text, label in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_parquet(path, rows):
    texts, labels = zip(*rows, strict=True)
    pq.write_table(pa.table({"verdict": pa.array(labels).dictionary_encode(), "review": list(texts)}), path)


WRITERS = {"csv": write_csv, "tsv": write_tsv, "jsonl": write_jsonl, "parquet": write_parquet}


def labelled_rows(count=160, gaps=0):
    """Rows of a learnable task; every `gaps`-th has no label."""
    texts = tiny.sentences(count)
    return [(text, "" if gaps and i % gaps == 0 else NAMES[label]) for i, (text, label) in enumerate(texts)]


def own_task(folder, rows, name="mine", **changed):
    """A task of one CSV file, loaded."""
    folder.mkdir(exist_ok=True)
    write_csv(folder / "rows.csv", rows)
    return load_task(write_yaml(folder, {"all": "rows.csv"}, name, **changed))


# Every kind of file.


@pytest.mark.parametrize("kind", WRITERS)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=5))
def test_text_reads_back_as_it_was_written(tmp_path_factory, kind, texts):
    folder = tmp_path_factory.mktemp("own")
    texts = [*texts, 'a "quoted", one\nof\r\nlines\t', *WORLD]
    WRITERS[kind](folder / f"rows.{kind}", [(text, NAMES[i % 2]) for i, text in enumerate(texts)])
    split = read_source(folder / f"rows.{kind}", load_task(write_yaml(folder, {"all": f"rows.{kind}"})))
    assert split.sentence1 == [normalise(text) for text in texts]
    assert split.labels.tolist() == [i % 2 for i in range(len(texts))]
    assert split.source_rows.tolist() == list(range(len(texts)))
    shutil.rmtree(folder)


def test_a_text_file_has_a_sentence_a_line_and_needs_no_columns(tmp_path):
    (tmp_path / "lines.txt").write_text('\ufeffone, "two"\r\n\n' + "\n".join(WORLD), encoding="utf-8")
    task = load_task(write_yaml(tmp_path, {"all": "lines.txt"}, columns=None))
    split = read_source(tmp_path / "lines.txt", task)
    assert split.sentence1 == ['one, "two"', *WORLD]
    assert not split.labelled.any()


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (["no", "yes"], ["no", "yes", None]),
        (["false", "true"], [False, True, None]),
        ([0, 1], [0, 1, None]),
        (["0", "1"], [0.0, 1.0, None]),
        (["1.5", "2"], [1.5, 2.0, None]),
    ],
)
def test_labels_may_be_text_numbers_or_booleans_and_may_be_missing(tmp_path, labels, values):
    rows = [{"review": f"text {i}", "verdict": value} for i, value in enumerate(values)]
    (tmp_path / "r.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    task = load_task(write_yaml(tmp_path, {"all": "r.jsonl"}, labels=labels))
    for name in ("r.jsonl", "r.parquet"):
        assert read_source(tmp_path / name, task).labels.tolist() == [0, 1, -1]


def test_a_number_in_a_parquet_column_with_gaps_is_the_label_it_was(tmp_path):
    pq.write_table(pa.table({"review": ["a", "b"], "verdict": [1.0, float("nan")]}), tmp_path / "r.parquet")
    task = load_task(write_yaml(tmp_path, {"all": "r.parquet"}, labels=[0, 1]))
    assert read_source(tmp_path / "r.parquet", task).labels.tolist() == [1, -1]


def test_scores_of_a_regression_may_be_missing_but_not_out_of_range(tmp_path):
    write_csv(tmp_path / "r.csv", [("a", "0.5"), ("b", ""), ("c", "5")])
    task = load_task(write_yaml(tmp_path, {"all": "r.csv"}, labels=None, range=[0, 5]))
    assert str(read_source(tmp_path / "r.csv", task).labels.tolist()) == "[0.5, nan, 5.0]"
    write_csv(tmp_path / "r.csv", [("a", "0.5"), ("b", "5.5")])
    with pytest.raises(UserError, match=r"line 3: unknown label '5\.5'; expected a number from 0 to 5"):
        read_source(tmp_path / "r.csv", task)


# Mistakes, each in one line that says where.

BAD_FILES = [
    ("r.csv", "review,verdict\na,thumbs up\nb\n", "line 3: expected 2 columns, found 1"),
    ("r.csv", "review,verdict\nwell, well,thumbs up\n", "line 2: expected 2 columns, found 3 (a cell with a comma"),
    ("r.csv", 'review,verdict\n"a\nb",thumbs up\n"open,thumbs up\nc,thumbs up\n', "line 4: malformed CSV"),
    ("r.csv", 'review,verdict\n"a" b,thumbs up\n', "line 2: malformed CSV"),
    (
        "r.csv",
        "review,verdict\na,thumbs upp\n",
        "line 2: unknown label 'thumbs upp'; expected thumbs down, thumbs up; did",
    ),
    (
        "r.csv",
        "reviews,verdict\na,thumbs up\n",
        "line 1: no column 'review' (found reviews, verdict); did you mean reviews?",
    ),
    ("r.csv", "review,verdict,review\na,thumbs up,b\n", "line 1: column 'review' appears 2 times"),
    ("r.csv", f"review,verdict\na,thumbs up\n{'x' * 2**20},thumbs up\n", "line 3: a sentence of 1,048,576 characters"),
    ("r.csv", f"review,verdict\n{'x' * 2**25},thumbs up\n", "line 2: longer than 16,777,216 bytes"),
    ("r.csv", "review,verdict\na\0b,thumbs up\n", "line 2: a sentence holds a NUL byte"),
    ("r.csv", b"review,verdict\na,thumbs up\ncaf\xe9,thumbs up\n", "line 3: not UTF-8"),
    ("r.csv", "review,verdict\na,thumbs up\n".encode("utf-16"), "line 1: not UTF-8"),
    ("r.csv", "", "an empty file"),
    ("r.csv", "review,verdict\n", "no rows of data"),
    ("r.tsv", "review\tverdict\na\tthumbs up\tb\n", "line 2: expected 2 columns, found 3 (no cell may hold a tab)"),
    ("r.tsv", "", "an empty file"),
    ("r.txt", "\n\n", "no rows of data"),
    ("r.txt", b"fine\n\xff\n", "line 2: not UTF-8"),
    ("r.jsonl", '{"review": "a", "verdict": "thumbs up"}\n{"review": \n', "line 2: not JSON"),
    ("r.jsonl", "[" * 100_000, "line 1: not JSON"),
    ("r.jsonl", '\n["a", "thumbs up"]\n', "line 2: not a JSON object"),
    (
        "r.jsonl",
        '{"reviw": "a", "verdict": "thumbs up"}\n',
        "line 1: no key 'review' (found reviw, verdict); did you mean",
    ),
    ("r.jsonl", '{"review": {"en": "a"}, "verdict": "thumbs up"}\n', "line 1: a sentence is of type dict, not text"),
    ("r.jsonl", '{"review": 7, "verdict": "thumbs up"}\n', "line 1: a sentence is of type int, not text (7)"),
    ("r.jsonl", '{"review": "a", "verdict": ["thumbs up"]}\n', "line 1: a label is of type list, not text or a number"),
    ("r.jsonl", '{"review": "a \\ud83d", "verdict": "thumbs up"}\n', "line 1: a sentence holds half a surrogate pair"),
    ("r.jsonl", "", "no rows of data"),
    ("r.parquet", "review,verdict\n", "damaged, or not a Parquet file"),
    ("r.xlsx", "PK", "unknown kind of file; save it as one of .csv, .tsv, .jsonl, .parquet, .txt (UTF-8)"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES, ids=[f"{n}: {m}" for n, _, m in BAD_FILES])
def test_a_bad_file_is_named_with_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        prepare(Workspace(tmp_path / "w"), load_task(write_yaml(tmp_path, {"all": name})), None, seed=1)
    assert str(error.value).startswith(str(tmp_path / name))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"reviews": ["a"], "verdict": ["thumbs up"]},
            "no column 'review' (found reviews, verdict); did you mean reviews?",
        ),
        ({"review": [1], "verdict": ["thumbs up"]}, "row 1: a sentence is of type int, not text (1)"),
        ({"review": ["a", "b"], "verdict": ["thumbs up", "up"]}, "row 2: unknown label 'up'"),
        ({"review": ["a"], "verdict": [["thumbs up"]]}, "row 1: a label is of type list"),
    ],
)
def test_a_bad_parquet_file_is_named_with_the_row(tmp_path, table, message):
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    with pytest.raises(UserError) as error:
        read_source(tmp_path / "r.parquet", load_task(write_yaml(tmp_path, {"all": "r.parquet"})))
    assert message in str(error.value)


@pytest.mark.parametrize("cut", [10, 300, -5])
def test_a_damaged_parquet_file_is_named(tmp_path, cut):
    write_parquet(tmp_path / "r.parquet", [(f"text {i}", NAMES[0]) for i in range(100)])
    whole = (tmp_path / "r.parquet").read_bytes()
    (tmp_path / "r.parquet").write_bytes(whole[:cut])
    with pytest.raises(UserError, match=r"r\.parquet: damaged, or not a Parquet file"):
        read_source(tmp_path / "r.parquet", load_task(write_yaml(tmp_path, {"all": "r.parquet"})))


def test_a_long_sentence_is_read_up_to_the_limit(tmp_path):
    task = own_task(tmp_path, [("x" * MAX_CHARACTERS, NAMES[0])])
    assert len(read_source(tmp_path / "rows.csv", task).sentence1[0]) == MAX_CHARACTERS


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv: no such file"):
        prepare(Workspace(tmp_path), load_task(write_yaml(tmp_path, {"all": "none.csv"})), None, seed=1)
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        load_task(str(tmp_path / "none.yaml"))


def test_every_label_needs_rows_for_every_split(tmp_path):
    rows = labelled_rows(40)
    with pytest.raises(UserError, match=r"rows\.csv: label 'hmm' never appears"):
        prepare(Workspace(tmp_path), own_task(tmp_path, rows, labels=[*NAMES, "hmm"]), None, seed=1)
    with pytest.raises(UserError, match=r"label 'hmm' appears on 1 row; a class needs 3, for train, test, validation"):
        prepare(Workspace(tmp_path), own_task(tmp_path, [*rows, ("so", "hmm")], labels=[*NAMES, "hmm"]), None, seed=1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [True, False]}, "put yes, no, true and false in quotes"),
        ({"source": {"files": {"trian": "a.csv"}}}, "unknown split 'trian'; did you mean train?"),
        ({"source": {"files": {"all": "a.csv", "train": "b.csv"}}}, "all and train mean the same"),
        (
            {"source": {"files": {"all": "a.csv", "test": "b.csv"}}, "test": {"rows": 5}},
            "cannot be carved and have a file",
        ),
        ({"name": "a/b"}, "'a/b' is not a task name"),
        ({"name": "sst-2"}, "sst-2 is the name of a shipped task; give yours another"),
        ({"colums": {}}, "unknown setting 'colums'; did you mean columns?"),
    ],
)
def test_a_faulty_task_file_is_refused(tmp_path, changed, message):
    path = write_yaml(tmp_path, {"all": "a.csv"})
    (tmp_path / "mine.yaml").write_text(json.dumps({**json.loads((tmp_path / "mine.yaml").read_text()), **changed}))
    with pytest.raises(UserError) as error:
        load_task(path)
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_pairs_cannot_come_from_a_text_file(tmp_path):
    (tmp_path / "lines.txt").write_text("a\n")
    columns = {"sentence1": "a", "sentence2": "b"}
    with pytest.raises(UserError, match=r"lines\.txt: a \.txt file holds one sentence a line"):
        read_source(tmp_path / "lines.txt", load_task(write_yaml(tmp_path, {"all": "lines.txt"}, columns=columns)))


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "r.csv").write_text("review,verdict\na\n")
    done = tiny.run_command("preprocess.py", "--task", write_yaml(tmp_path, {"all": "r.csv"}), "--workspace", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'r.csv'} line 2: expected 2 columns, found 1\n"


# Splits.


def test_a_tenth_each_is_carved_where_nothing_is_said_and_the_rest_is_as_asked(tmp_path):
    splits = prepare(Workspace(tmp_path / "w"), own_task(tmp_path, labelled_rows(160)), None, seed=1)
    assert 14 <= len(splits["test"]) <= 18
    assert 12 <= len(splits["validation"]) <= 18
    other = own_task(tmp_path, labelled_rows(160), validation={"rows": 40}, test={"rows": 30})
    splits = prepare(Workspace(tmp_path / "w"), other, None, seed=1)
    assert 30 <= len(splits["test"]) <= 32
    assert 40 <= len(splits["validation"]) <= 42


def test_only_labelled_rows_are_carved_and_unlabelled_ones_do_not_leak(tmp_path):
    rows = labelled_rows(120, gaps=3)
    rows += [(text.upper(), "") for text, label in rows if label]  # every labelled row once more, without its label
    splits = prepare(Workspace(tmp_path / "w"), own_task(tmp_path, rows), None, seed=1)
    assert splits["test"].labelled.all()
    assert splits["validation"].labelled.all()
    held_out = {text.lower() for name in ("test", "validation") for text in splits[name].sentence1}
    assert not held_out & {text.lower() for text in splits["train"].sentence1}
    unlabelled = [rows[row][0] for row in splits["train"].source_rows[~splits["train"].labelled]]
    assert set(unlabelled) <= {text for text, label in rows[:120] if not label}  # of two equal rows the labelled stays


def test_rows_of_the_unlabelled_file_join_train_whatever_its_columns(tmp_path):
    rows = labelled_rows(80)
    (tmp_path / "more.txt").write_text(f"a sentence all of its own\n{rows[0][0]}\n")
    write_csv(tmp_path / "rows.csv", rows)
    task = load_task(write_yaml(tmp_path, {"train": "rows.csv", "unlabelled": "more.txt"}))
    train = prepare(Workspace(tmp_path / "w"), task, None, seed=1)["train"]
    assert train.sentence1[-1] == "a sentence all of its own"
    assert (train.labelled == (np.arange(len(train)) < len(train) - 1)).all()
    assert train.source_rows[-1] == 80
    write_csv(tmp_path / "more.csv", [["only this"]], header=["review"])
    task = load_task(write_yaml(tmp_path, {"train": "rows.csv", "unlabelled": "more.csv"}))
    assert prepare(Workspace(tmp_path / "w"), task, None, seed=1)["train"].sentence1[-1] == "only this"


def test_files_given_for_validation_and_test_stay_whole_and_what_they_hold_leaves_train(tmp_path):
    rows = labelled_rows(120)
    phrase = " ".join(rows[100][0].split()[2:9])
    write_csv(tmp_path / "train.csv", [*rows[:100], (rows[100][0].upper(), NAMES[0]), (phrase, NAMES[0]), rows[119]])
    write_csv(tmp_path / "dev.csv", rows[100:110])
    write_csv(tmp_path / "test.csv", [*rows[110:], rows[119]])
    files = {"train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
    splits = prepare(Workspace(tmp_path / "w"), load_task(write_yaml(tmp_path, files)), None, seed=1)
    assert splits["validation"].sentence1 == [text for text, _ in rows[100:110]]
    assert splits["test"].sentence1 == [text for text, _ in [*rows[110:], rows[119]]]
    assert splits["train"].sentence1 == [text for text, _ in rows[:100]]
    report = read_report(Workspace(tmp_path / "w"), "mine")
    assert report["dropped"] == {"validation": 2, "test": 1}
    assert [entry["rows"] for entry in report["overlaps"]] == [0, 0, 0]


def test_a_train_file_that_is_all_leak_is_refused(tmp_path):
    write_csv(tmp_path / "a.csv", labelled_rows(20))
    files = {"train": "a.csv", "validation": "a.csv", "test": "a.csv"}
    with pytest.raises(UserError, match="every row of train overlaps validation or test"):
        prepare(Workspace(tmp_path / "w"), load_task(write_yaml(tmp_path, files)), None, seed=1)


def test_text_of_symbols_alone_is_told_apart(tmp_path):
    rows = [(text, NAMES[i % 2]) for i, text in enumerate(WORLD)]
    split = read_source(tmp_path / "rows.csv", own_task(tmp_path, [*rows, ("😀!", ""), ("...", ""), ("?!", "")]))
    assert split.sentence1[: len(WORLD)] == WORLD
    assert duplicates(split).tolist() == [len(WORLD), len(WORLD) + 2]


@pytest.mark.parametrize("embedding", ["bpe", "hash", "char"])
def test_text_of_any_script_passes_through_tokenizers_and_report(tmp_path, embedding, workspace, encoder):
    rows = [(f"{text} {i}", NAMES[i % 2]) for i, text in enumerate(WORLD * 6)]
    task = own_task(tmp_path / "own", rows)
    splits = prepare(Workspace(tmp_path / "w"), task, None, seed=1)
    texts = {text for split in splits.values() for text in split.sentence1}
    assert texts <= {text for text, _ in rows}
    again = read_split(Workspace(tmp_path / "w").split("mine", "train"), "")
    assert again.sentence1 == splits["train"].sentence1
    given = {"only_original_data": True, "alpha": 1, "student_arch": "ffn", "embedding_type": embedding}
    folder = distill(settings_of(tmp_path / "w", task.file, vocab_size=150, **given))
    tokenizer = load_tokenizer(CompressSettings(task="sst-2", **{**read_config(folder).student}).student(), folder)
    codes = [tokenizer.encode(text).ids.tolist() for text in WORLD]
    assert all(codes)


# Names.


def test_two_tasks_of_one_name_are_never_mixed(tmp_path):
    first = own_task(tmp_path / "a", labelled_rows(60))
    second = own_task(tmp_path / "b", labelled_rows(80))
    paths = Workspace(tmp_path / "w")
    train = prepare(paths, first, None, seed=1)["train"]
    for refused in (lambda: prepare(paths, second, None, seed=1), lambda: load_split(paths, second, "train")):
        with pytest.raises(UserError, match=r"a.mine\.yaml; give one of them another name"):
            refused()
    with pytest.raises(UserError, match="give one of them another name"):
        preprocess(tiny.prepare_settings(paths.root, second.file, augment="tinybert"))
    assert load_split(paths, first, "train").fingerprint() == train.fingerprint()
    assert len(prepare(paths, second, None, seed=1, force=True)["train"]) > len(train)
    with pytest.raises(UserError, match="give one of them another name"):
        load_split(paths, first, "train")


def test_changed_files_and_seeds_are_noticed_and_a_moved_folder_is_not(tmp_path):
    task, paths = own_task(tmp_path / "a", labelled_rows(60)), Workspace(tmp_path / "w")
    prepare(paths, task, None, seed=1)
    made = read_metadata(paths.split("mine", "train"))["made_from"]
    (tmp_path / "a").rename(tmp_path / "b")
    moved = load_task(str(tmp_path / "b/mine.yaml"))
    with pytest.raises(UserError, match=r"preprocess\.py --task"):
        load_split(paths, moved, "train")
    prepare(paths, moved, None, seed=1)
    assert read_metadata(paths.split("mine", "train"))["made_from"] == made
    assert len(load_split(paths, moved, "train"))
    prepare(paths, moved, None, seed=2)
    seeds = read_metadata(paths.split("mine", "train"))["made_from"]
    own_task(tmp_path / "b", labelled_rows(70))
    prepare(paths, moved, None, seed=2)
    assert len({made, seeds, read_metadata(paths.split("mine", "train"))["made_from"]}) == 3


def test_an_experiment_finds_the_task_beside_its_file(tmp_path, monkeypatch):
    own_task(tmp_path, labelled_rows(20))
    experiment = {"name": "e", "settings": {"task": "mine.yaml"}, "jobs": [{"preprocess": {}}]}
    (tmp_path / "e.yaml").write_text(json.dumps(experiment))
    assert plan_file(tmp_path / "e.yaml", []).jobs[0].given["task"] == str(tmp_path / "mine.yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/e.yaml").write_text(json.dumps(experiment))
    monkeypatch.chdir(tmp_path)
    assert plan_file(tmp_path / "sub/e.yaml", []).jobs[0].given["task"] == "mine.yaml"


# A teacher as it is.


def write_classifier(encoder, folder, names=None, outputs=2):
    """A Hugging Face classifier with a head of random, but saved, weights."""
    import transformers

    labels = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}
    torch.manual_seed(1)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=outputs, **labels)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory):
    """(workspace, task file): a prepared task of sentences without labels."""
    folder = tmp_path_factory.mktemp("unlabelled")
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text, _ in tiny.sentences(120)))
    path = write_yaml(folder, {"all": "lines.txt"}, name="lines", columns=None)
    preprocess(tiny.prepare_settings(folder / "w", path))
    return folder / "w", path


@pytest.mark.parametrize("names", [None, ["Thumbs Down", "Thumbs Up"]])
def test_a_classifier_is_adopted_with_its_weights_and_says_what_it_said(tmp_path, encoder, unlabelled, names):
    import transformers

    workspace, task = unlabelled
    source = write_classifier(encoder, tmp_path / "clf", names)
    given = {"as_is": True, "model_name": f"t{bool(names)}"}
    folder = finetune(tiny.finetune_settings(workspace, task, source, **given))
    assert finetune(tiny.finetune_settings(workspace, task, source, **given)) == folder
    config = read_config(folder)
    assert (config.kind, config.task, config.labels, config.trained_on) == ("teacher", "lines", NAMES, ())
    rows = {"generate_loss": ("validation",), "model_name": folder.name, "precision": "fp32"}
    preprocess(tiny.prepare_settings(workspace, task, **rows))
    validation = load_split(Workspace(workspace), load_task(task), "validation")
    logits = load_logits(Workspace(workspace), load_task(task), folder.name, "validation")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    with torch.inference_mode():
        expected = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in validation.sentence1]
    np.testing.assert_allclose(logits, np.stack(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("names", "outputs", "message"),
    [
        (None, 3, "has 3 outputs, lines needs 2"),
        (["bad", "good"], 2, "knows the labels bad, good; lines has thumbs down, thumbs up"),
        (["THUMBS UP", "THUMBS DOWN"], 2, r"another order; write labels: \[thumbs up, thumbs down\] in .*lines\.yaml"),
    ],
)
def test_a_head_of_other_labels_is_refused(tmp_path, encoder, unlabelled, names, outputs, message):
    workspace, task = unlabelled
    source = write_classifier(encoder, tmp_path / "clf", names, outputs)
    with pytest.raises(UserError, match=message):
        finetune(tiny.finetune_settings(workspace, task, source, as_is=True))


def test_what_is_no_fine_tuned_classifier_is_refused(tmp_path, encoder, unlabelled, workspace):
    root, task = unlabelled
    with pytest.raises(UserError, match=r"no trained classification head \(classifier\.bias is missing\)"):
        finetune(tiny.finetune_settings(root, task, encoder, as_is=True))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: holds no model"):
        finetune(tiny.finetune_settings(root, task, tmp_path / "empty", as_is=True))
    with pytest.raises(UserError, match="is no folder, no TASK/NAME of a teacher in the workspace, and"):
        finetune(tiny.finetune_settings(root, task, "featherweight/none", as_is=True))
    pairs = workspace / "models/qqp/tiny-bert"
    with pytest.raises(UserError, match="reads pairs of sentences, lines has single sentences"):
        finetune(tiny.finetune_settings(root, task, pairs, as_is=True))
    with pytest.raises(UserError, match=r"no row of train has a label.*--as-is"):
        finetune(tiny.finetune_settings(root, task, encoder))


# Whole chains.


def settings_of(workspace, task, **given):
    return tiny.compress_settings(task=task, workspace=workspace, **tiny.small(**given))


def scores(workspace, task, name):
    (row,) = evaluate(EvaluateSettings(task=task, workspace=workspace, model_name=name, cpu=True, loadbar=False))
    return row["metrics"]


@pytest.fixture(scope="module")
def own(tmp_path_factory, encoder, glove):
    """(workspace, task file): rows in part unlabelled, a fine-tuned teacher, augmented rows, logits over both."""
    folder = tmp_path_factory.mktemp("own")
    write_csv(folder / "rows.csv", labelled_rows(200, gaps=4))
    task = write_yaml(folder, {"all": "rows.csv"}, name="own")
    preprocess(tiny.prepare_settings(folder / "w", task))
    finetune(tiny.finetune_settings(folder / "w", task, encoder, max_epochs=4))
    made = {"augment": "tinybert", "glove": glove, "variants": 2, "generate_loss": ("processed", "tinybert")}
    preprocess(tiny.prepare_settings(folder / "w", task, precision="fp32", **made))
    return folder / "w", task


def test_a_csv_file_of_ones_own_goes_through_every_stage(own):
    workspace, task = own
    actions = ("distill", "prune", "quantize")
    folders = compress(settings_of(workspace, task, epochs=6, student_arch="ffn", compression_actions=actions))
    assert [read_config(folder).stage for folder in folders] == ["distilled", "pruned", "quantized"]
    assert scores(workspace, task, "tiny-bert")["accuracy"] > 0.6
    assert scores(workspace, task, folders[0].name)["accuracy"] > 0.6
    assert scores(workspace, task, folders[-1].name)["accuracy"] > 0.5


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
    made = {"augment": "tinybert", "glove": glove, "variants": 2, "generate_loss": rows}
    preprocess(tiny.prepare_settings(workspace, task, precision="fp32", **made))
    settings = settings_of(workspace, task, epochs=6, student_arch="ffn")
    held_out = held_out_rows(settings, load_task(task), "tiny-bert")
    assert held_out.labelled.all()
    student = distill(settings)
    assert scores(workspace, task, student.name).keys() == {"agreement"}
    assert scores(workspace, task, student.name)["agreement"] > 0.6
    assert scores(workspace, task, "tiny-bert") in ({}, {"agreement": 1.0})
    with pytest.raises(UserError, match="no row of train has a label"):
        distill(settings_of(workspace, task, alpha=1, only_original_data=True))


def test_commands_by_hand_take_the_task_file(own):
    workspace, task = own
    common = ["--task", task, "--workspace", workspace, "--cpu", "--no-loadbar"]
    done = tiny.run_command("evaluate.py", *common, "--model-name", "tiny-bert", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["task"] == "own"
