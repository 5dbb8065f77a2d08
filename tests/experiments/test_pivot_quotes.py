"""The thesis's figures next to ours in tables."""

import pytest
from pivot_rows import METHODS, heads, labels_of, only, record, scored, scores, texts, thesis_grid, values

from common.errors import UserError
from compression.experiments.report.pivot import pivots
from compression.experiments.report.record import Quote


def test_the_thesis_is_next_to_ours_and_never_best():
    cell = {"student_arch": "bilstm", "embedding_type": "bpe", "embedding_dim": "25"}
    rows = scored({**cell, "method": "no distil"}, 0.5, 0.5, 0.5, 0.5, alpha=1.0, augmented=False)
    rows += scored({**cell, "method": "alpha 0"}, 0.6, 0.6, 0.6, 0.6)
    pivot = only(rows, thesis_grid(quote=Quote(table="7.1", task="sst-2")))
    columns = [head for head in pivot.heads if head.seeds]
    assert [head.levels[-1] for head in columns] == ["accuracy", "accuracy, thesis, SST-2 (quoted)"] * 2
    assert [head.group for head in columns] == ["", "quoted"] * 2
    found = texts(pivot)
    assert found["bilstm", "bpe", "25"] == ["50.00 ± 0.00", "82.9 ± 0.6", "60.00 ± 0.00*", "88.6 ± 0.4"]
    # Not run yet: identified by its planned settings.
    assert found["ffn", "hash", "25"] == ["–", "75.0 ± 0.7", "–", "81.2 ± 0.5"]
    names = ["RoBERTa-large", "TinyBERT-6", "GLUE BiLSTM GloVe", "GLUE BiLSTM ELMo"]
    assert [(*labels_of(pivot, line), line.kind) for line in pivot.baselines] == [(name, "quoted") for name in names]
    assert [entry.text for entry in scores(pivot, pivot.baselines[0])] == ["–", "96.56", "–", "96.56"]


def test_only_the_same_student_is_quoted():
    student = {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": 25}
    axes = {"vocab_size": values(2500, 5000, 1000, axis="vocab_size")}
    axes["method"] = {label: {**given, **student} for label, given in METHODS.items()}
    pivot = only([], record(axes, rows=["vocab_size"], quote=Quote(table="7.1")))
    assert {labels: cells[1::2] for labels, cells in texts(pivot).items()} == {
        ("2500",): ["74.8 ± 1.1", "80.2 ± 0.2"],
        ("5000",): ["75.0 ± 0.7", "81.2 ± 0.5"],
        ("1000",): ["–", "–"],
    }
    # A distilled student's figure is not that of a pruned one.
    grid = thesis_grid(quote=Quote(table="7.1"))
    pruned = {"compression_actions": ["distill", "prune"]}
    runs = [run.model_copy(update={"settings": {**run.settings, **pruned}}) for run in grid.runs]
    assert not any("quoted" in head for head in heads(only([], grid.model_copy(update={"runs": tuple(runs)}))))


def test_pooling_is_known_from_a_runs_rows():
    axes = {"method": {"alpha 0": {"embedding_type": "hash", "embedding_dim": 100}}}
    grid = record({"student_arch": values("rnn", axis="student_arch"), **axes}, quote=Quote(table="7.6"))
    assert heads(only([], grid)) == ["alpha 0 · accuracy"]
    student = {"student_arch": "rnn", "embedding_type": "hash", "embedding_dim": 100}
    cell = {"student_arch": "rnn", "method": "alpha 0"}
    rows = scored(cell, 0.8, 0.8, 0.8, 0.8, **student, settings={"pooling": "max", "loss": "mse"})
    assert texts(only(rows, grid)) == {("rnn",): ["80.00 ± 0.00", "81.9"]}


@pytest.mark.parametrize(("pieces", "quoted"), [(5000, "81.02"), (2500, "79.99")])
def test_the_vocabulary_of_a_quantized_student_is_known_from_its_rows(pieces, quoted):
    """Its settings are those of quantization, and the settings of its run are those of the run's first chain."""
    axes = {"model": {"hash": {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": 25}}}
    grid = record(axes, rows=["model", "stage"], columns=["task"], quote=Quote(table="7.5"))
    actions = {"stage": "quantized", "actions": ["distill", "quantize"], "settings": {}}
    student = {"student_arch": "ffn", "embedding_type": "hash", "embedding_dim": 25, "vocab_size": pieces}
    found = texts(only(scored({"model": "hash"}, 0.8, 0.8, 0.8, 0.8, **student, **actions), grid))
    assert found["hash", "+q"][-1] == quoted


def test_an_unknown_table_cannot_be_quoted():
    with pytest.raises(UserError, match="no table '9'"):
        pivots([], thesis_grid(quote=Quote(table="9")))
