"""Settings: defaults < YAML < flag, types, and errors that name the nearest thing."""

from typing import Literal, get_args

import pydantic
import pytest

from common.config import CONFIG_DIR, Settings, build, load_yaml, parse_flags
from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.teachers.settings import FinetuneSettings
from compression.augmentation.preprocess import PreprocessSettings
from compression.evaluation.evaluate import EvaluateSettings
from compression.settings import CompressSettings, defaults_for
from compression.students.settings import StudentArch, StudentSettings, student_defaults


class Knobs(Settings):
    """Settings for these tests."""

    rate: float = 0
    """A float whose default looks like an int."""
    rows: int = pydantic.Field(3, gt=0)
    """An int."""
    loud: bool = False
    """A switch."""
    kind: Literal["plain", "fancy"] = "plain"
    """A choice."""
    steps: tuple[Literal["one", "two"], ...] = ("one",)
    """Several."""
    limit: float | None = None
    """Unset or a number."""


def knobs(*words, **options):
    return parse_flags(Knobs, words, "test", **options)


def test_defaults_then_yaml_then_flags(tmp_path):
    file = tmp_path / "knobs.yaml"
    file.write_text("rate: 0.5\nrows: 7\n")
    assert knobs() == Knobs()
    assert knobs("--config", str(file)).rows == 7
    both = knobs("--config", str(file), "--rows", "9")
    assert (both.rate, both.rows) == (0.5, 9)


def test_further_defaults_lie_below_yaml_and_flags(tmp_path):
    file = tmp_path / "knobs.yaml"
    file.write_text("rows: 7\n")
    layered = knobs("--config", str(file), "--kind", "fancy", defaults=lambda given: {"rows": 5, "rate": 2.0})
    assert (layered.rows, layered.rate, layered.kind) == (7, 2.0, "fancy")


def test_dashes_and_underscores_are_the_same_in_yaml(tmp_path):
    file = tmp_path / "students.yaml"
    file.write_text("embedding-dim: 9\n")
    assert load_yaml(file) == {"embedding_dim": 9}


def test_yaml_numbers_with_an_exponent_are_numbers(tmp_path):
    # YAML 1.1 reads 1e-4 as a string.
    file = tmp_path / "knobs.yaml"
    file.write_text("rate: 1e-4\n")
    assert knobs("--config", str(file)).rate == 1e-4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rowss", "3"], "unknown flag --rowss; did you mean --rows?"),
        (["--row", "3"], "unknown flag --row; did you mean --rows?"),  # no prefixes
        (["--rate=1", "--qqq=3"], "unknown flag --qqq"),
        (["astray"], "stray word"),
        (["--rows", "3.5"], "--rows: "),
        (["--rows", "0"], "--rows: "),
        (["--rows", "many"], "(got 'many')"),
        (["--rate", "nan"], "--rate: "),
        (["--rate", "inf"], "--rate: "),
        (["--kind", "plian"], "--kind: "),
        (["--steps", "one", "three"], "three"),
        (["--rows"], "--rows"),
    ],
)
def test_a_bad_command_line_is_one_line_that_names_the_flag(words, message):
    with pytest.raises(UserError) as error:
        knobs(*words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_switches_and_lists():
    assert knobs("--loud").loud
    assert not knobs("--no-loud").loud
    assert knobs("--steps", "two", "one").steps == ("two", "one")
    assert knobs("--limit", "0").limit == 0.0


def test_an_unknown_key_names_the_nearest(tmp_path):
    file = tmp_path / "knobs.yaml"
    file.write_text("raet: 1\n")
    with pytest.raises(UserError, match="unknown setting 'raet'; did you mean rate"):
        knobs("--config", str(file))


@pytest.mark.parametrize("text", ["- a\n- b\n", "rate: [1\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_named(tmp_path, text):
    file = tmp_path / "knobs.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=r"knobs\.yaml"):
        knobs("--config", str(file))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        knobs("--config", str(tmp_path / "none.yaml"))


def test_an_empty_file_gives_the_defaults(tmp_path):
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert knobs("--config", str(tmp_path / "empty.yaml")) == Knobs()


def test_a_required_setting_is_asked_for_by_its_flag():
    with pytest.raises(UserError, match="--task is required"):
        parse_flags(EvaluateSettings, ["--model-name", "x"], "test")


def test_settings_cannot_be_changed():
    with pytest.raises(pydantic.ValidationError):
        Knobs().rows = 4


def test_help_shows_docstrings_and_the_defaults_of_the_architecture_asked_for(capsys):
    with pytest.raises(SystemExit) as stop:
        parse_flags(CompressSettings, ["--task", "sst-2", "--student-arch", "rnn", "--help"], "test", defaults_for)
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    says = "How text becomes vectors: byte pairs, hashed words, characters, or the teacher's own word pieces."
    assert f"{says} (default: char)" in shown
    assert "--prune-aware" in shown


def test_json_is_a_flag_of_evaluate():
    settings = parse_flags(EvaluateSettings, ["--task", "sst-2", "--model-name", "m", "--json"], "test")
    assert settings.json_


@pytest.mark.parametrize("task", known_tasks())
def test_every_shipped_task_loads(task):
    loaded = load_task(task)
    assert loaded.name == task
    assert loaded.pair == ("sentence2" in loaded.columns)


@pytest.mark.parametrize("arch", get_args(StudentArch))
@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_every_shipped_student_builds_and_pairs_enlarge_it(arch, task):
    settings = CompressSettings(**{"task": task, "student_arch": arch, **student_defaults(arch, task == "qqp")})
    alone = StudentSettings(
        **{k: v for k, v in student_defaults(arch, False).items() if k in StudentSettings.model_fields}
    )
    larger = task == "qqp" and arch not in ("transformer", "recursive")  # which read a pair as one text
    assert settings.student().cls_hidden_dim == (2 if larger else 1) * alone.cls_hidden_dim
    if larger and arch != "ffn":
        assert settings.encoder_hidden_dim > alone.encoder_hidden_dim


def test_every_key_of_the_student_files_is_a_setting():
    for file in (CONFIG_DIR / "students").glob("*.yaml"):
        values = load_yaml(file)
        keys = {*values, *values.get("pair", {})} - {"pair"}
        assert keys <= set(CompressSettings.model_fields), file.name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compression-actions", "prune", "distill"], "the order is pretrain, distill, factorize, prune"),
        (["--compression-actions", "distill", "prune", "prune"], "twice"),
        (["--compression-actions", "prune"], "--load-trained-model"),
        (["--load-trained-model", "x"], "leave distill out"),
        (["--prune-magnitude", "--prune-topv"], "exclude each other"),
        (["--dq-classifier", "--ptq-classifier"], "exclude each other"),
        (["--prune-threshold", "1"], "below 1"),
        (["--bpe-model", "x"], "go together"),
        (["--alpha", "1.5"], "--alpha"),
        (["--student-arch", "bilstn"], "--student-arch"),
        (["--student-arch", "conv", "--pooling", "last"], "--pooling last: a convolution has no last state; take max"),
        (["--student-arch", "conv", "--kernel-width", "4"], "--kernel-width: a window is centred .* odd \\(got 4\\)"),
        (["--student-arch", "conv", "--kernel-width", "257"], "--kernel-width"),
    ],
)
def test_contradictions_are_refused_at_construction(words, message):
    with pytest.raises(UserError, match=message):
        parse_flags(CompressSettings, ["--task", "sst-2", *words], "test", defaults_for)


@pytest.mark.parametrize(
    ("words", "lr"),
    [
        ([], 0.012),
        (["--batch-size", "64"], 0.006),
        (["--batch-size", "1024"], 0.024),
        (["--batch-size", "64", "--lr", "0.1"], 0.1),
    ],
)
def test_an_architectures_learning_rate_follows_the_batch_size(words, lr):
    settings = parse_flags(CompressSettings, ["--task", "sst-2", "--student-arch", "ffn", *words], "test", defaults_for)
    assert settings.lr == pytest.approx(lr)


def test_old_names_and_named_seeds_are_understood():
    words = ["--task", "sst-2", "--student-arch", "emb-ffn", "--seed-name", "feynman"]
    settings = parse_flags(CompressSettings, words, "test", defaults_for)
    assert (settings.student_arch, settings.seed) == ("ffn", 5111918)
    assert (settings.embedding_type, settings.loss) == ("hash", "temperature-softmax")


@pytest.mark.parametrize("arch", get_args(StudentArch))
def test_a_regressions_students_learn_by_mse(arch):
    words = ["--task", "sts-b", "--student-arch", arch]
    assert parse_flags(CompressSettings, words, "test", defaults_for).loss == "mse"


def test_fp16_contradicts_another_precision():
    with pytest.raises(UserError, match="--fp16 contradicts --precision bf16"):
        parse_flags(FinetuneSettings, ["--task", "sst-2", "--fp16", "--precision", "bf16"], "test")


MINE = (
    "name: mine\ncolumns: {sentence1: t, label: l}\n"
    "source: {kind: files, files: {all: x.csv}}\nvalidation: {fraction: 0.1}\n"
)


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(UserError, match=r"unknown task 'sst2'; did you mean sst-2\?"):
        load_task("sst2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: mine\nlabls: [a, b]\n", "did you mean labels"),
        (MINE + "labels: [a]\n", "two or more labels"),
        (MINE, "two or more labels, or a range"),
        (MINE + "labels: [a, b]\nrange: [0, 1]\n", "not both"),
        (MINE + "range: [5, 0]\n", "lowest score comes first"),
        (MINE + "labels: [a, b]\nlabel_values: [a]\n", "same length"),
        (MINE + "labels: [a, a]\n", "must not repeat"),
        (MINE.replace("sentence1", "sentence2") + "labels: [a, b]\n", "sentence1"),
        (MINE + "labels: [a, b]\nmetrics: [pearson]\n", "pearson is not one of this kind of task"),
        (MINE + "range: [0, 5]\nmetrics: [accuracy]\n", r"accuracy is not one .* \(pearson, spearman\)"),
        (MINE + "labels: [a, b, c]\nmetrics: [f1]\n", "f1_macro"),
        (MINE + "labels: [a, b]\nmodels_of: mnli\n", "models_of"),
    ],
)
def test_a_task_file_with_a_mistake_is_named(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        load_task(str(file))
    assert "mine.yaml" in str(error.value)


def test_a_key_of_the_wrong_class_is_refused():
    with pytest.raises(UserError, match="unknown setting 'augmnt'; did you mean augment"):
        build(PreprocessSettings, {"task": "sst-2", "augmnt": "tinybert"})


def test_a_seed_typed_as_a_flag_beats_a_seeds_name_in_the_file(tmp_path):
    (tmp_path / "run.yaml").write_text("seed_name: feynman\n")
    words = ["--task", "sst-2", "--config", str(tmp_path / "run.yaml"), "--seed", "3"]
    try:
        seed = parse_flags(CompressSettings, words, "test", defaults_for).seed
    except UserError:
        return  # refused as a contradiction: as good, but never silently another seed
    assert seed == 3


def test_choices_among_numbers_are_read_from_words():
    words = ["--task", "sst-2", "--bits", "4", "--bits-encoder", "2"]
    settings = parse_flags(CompressSettings, words, "")
    assert (settings.bits, settings.bits_encoder, settings.bits_embedding) == (4, 2, None)
    with pytest.raises(UserError, match="--bits: should be 8, 6, 4, 3 or 2"):
        parse_flags(CompressSettings, [*words, "--bits", "5"], "")
