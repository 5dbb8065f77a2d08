"""Settings of the scripts: defaults of each architecture, contradictions, old names, groups of --help."""

import sys
from typing import get_args

import pytest

import compress
from common.config import CONFIG_DIR, flag, help_groups, load_yaml, parse_flags
from common.errors import UserError
from common.teachers.settings import FinetuneSettings
from common.teachers.settings import defaults_for as teacher_defaults
from compression.augmentation.settings import PreprocessSettings
from compression.experiments.jobs import JOBS, Job
from compression.inference.predict import PredictSettings
from compression.shrinking.settings import ORDER, READS, CompressSettings, defaults_for, reads
from compression.students.settings import StudentArch, StudentSettings, student_defaults


def settings_of(*words):
    """compress.py's settings from flags."""
    return parse_flags(CompressSettings, ["--task", "sst-2", *words], "test", defaults_for)


@pytest.mark.parametrize("cls", [*JOBS.values(), PredictSettings])
def test_help_shows_every_flag_once_the_most_used_first(cls):
    groups = help_groups(cls)
    assert sorted(name for names in groups.values() for name in names) == sorted(cls.model_fields)
    assert len(groups.get("Most used", [])) <= 12
    assert list(groups)[-1] == "Common settings"


def test_compress_has_a_group_for_each_action():
    groups = help_groups(CompressSettings)
    assert "prune_units" in groups["Pruning"]
    assert "align_hidden" in groups["Teacher alignment"]
    assert {"Distillation", "Initialisation", "Quantization", "Factorisation"} < set(groups)
    assert "glove" in help_groups(PreprocessSettings)["Augmentation"]


def test_help_shows_the_defaults_of_the_architecture_asked_for(capsys):
    with pytest.raises(SystemExit):
        settings_of("--student-arch", "rnn", "--help")
    assert "RoBERTa's byte-level pairs). (default: char)" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def helped(capsys, monkeypatch):
    """A function from the words after compress.py to the settings whose flags it describes."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["compress.py", *words])
        with pytest.raises(SystemExit) as stop:
            compress.main()
        assert stop.value.code == 0
        lines = capsys.readouterr().out.splitlines()
        flags = {line.split()[0].rstrip(",") for line in lines if line.startswith("  -")}
        assert {"--config", "-h", "--help-all"} < flags
        return {name for name in CompressSettings.model_fields if flag(name) in flags}

    return run


OF_ALL = set(CompressSettings.model_fields) - set().union(*READS.values())
"""Settings that all actions read."""


def test_every_other_setting_is_named_by_an_action_that_reads_it():
    assert {"compression_actions", "task", "workspace", "loadbar", "force"} == OF_ALL
    assert reads(ORDER) | OF_ALL == set(CompressSettings.model_fields)


@pytest.mark.parametrize("action", ORDER)
def test_help_of_an_action_has_the_usual_flags_and_help_all_has_all_that_it_reads(helped, action):
    usual = helped(action, "--help")
    assert usual == helped("--task", "sst-2", "--help", "--compression-actions", action)
    assert "task" in usual
    assert usual < helped(action, "--help-all") == reads([action]) | OF_ALL
    assert len(usual) <= 25
    assert len(usual) >= 15 or len(READS[action]) < 15


def test_help_of_an_action_is_for_the_architecture_asked_for(helped):
    assert {"layers", "heads"} < helped("distill", "--student-arch", "transformer", "--help")
    assert not {"layers", "heads"} & helped("distill", "--student-arch", "bilstm", "--help")


def test_help_of_several_actions_has_the_flags_of_each(helped):
    assert helped("distill", "quantize", "pack", "--help") == helped("distill", "-h") | helped("quantize", "-h") | {
        "reject"
    }
    assert helped("--help") == helped("--help-all") == set(CompressSettings.model_fields)


def test_actions_may_be_the_first_words(monkeypatch):
    def no_work(settings):
        raise UserError(" ".join(settings.compression_actions))

    monkeypatch.setattr("compression.shrinking.chain.compress", no_work)
    for words in ("distill prune --task sst-2", "--compression-actions distill prune --task sst-2"):
        monkeypatch.setattr(sys, "argv", ["compress.py", *words.split()])
        with pytest.raises(UserError, match=r"^distill prune$"):
            compress.main()
    for words, message in (("distil --task sst-2", "--compression-actions: .*distil"), ("pack x.fwt", "x.fwt")):
        monkeypatch.setattr(sys, "argv", ["compress.py", *words.split()])
        with pytest.raises(UserError, match=message):
            compress.main()


@pytest.mark.parametrize("arch", get_args(StudentArch))
@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_every_shipped_student_builds_and_pairs_enlarge_it(arch, task):
    settings = CompressSettings(**{"task": task, "student_arch": arch, **student_defaults(arch, task == "qqp")})
    alone = StudentSettings(
        **{k: v for k, v in student_defaults(arch, False).items() if k in StudentSettings.model_fields}
    )
    larger = task == "qqp" and arch not in ("transformer", "recursive")  # which read a pair as one text
    assert settings.part(StudentSettings).cls_hidden_dim == (2 if larger else 1) * alone.cls_hidden_dim
    if larger and arch != "ffn":
        assert settings.encoder_hidden_dim > alone.encoder_hidden_dim


def test_every_key_of_the_student_files_is_a_setting():
    for file in (CONFIG_DIR / "students").rglob("*.yaml"):
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
        (["--compression-actions", "distill", "prune", "--prune-movement"], "--prune-movement .* --tune-epochs"),
        (["--rank", "2.5"], "--rank: a rank of 1 or more must be a whole number"),
        (["--max-bytes", "9", "--max-loss", "1"], "exclude each other"),
        (["--max-bytes", "900", "--bits", "4"], "leave --bits out"),
        (["--quantizer", "ternary", "--bits", "4"], "leave --bits out"),
        (["--quantizer", "ternary", "--bits-encoder", "4"], "leave --bits-encoder out"),
        (["--quantizer", "ternary", "--max-loss", "1"], "ternary cannot be combined"),
        (["--quantizer", "codebook", "--granularity", "column"], "not for columns"),
        (["--quantizer", "codebook", "--rounding", "stochastic"], "no even steps to round to"),
        (["--window-overlap", "2", "--join-texts"], "exclude each other"),
        (["--bpe-model", "x"], "go together"),
        (["--alpha", "1.5"], "--alpha"),
        (["--word-dropout", "1"], "--word-dropout"),
        (["--student-arch", "bilstn"], "--student-arch"),
        (["--student-arch", "conv", "--pooling", "last"], "--pooling last: a convolution has no last state; use max"),
        (["--student-arch", "conv", "--pooling", "mean"], "--pooling mean is for ffn \\(got conv\\)"),
        (["--pooling", "both"], "--pooling both is for ffn \\(got bilstm\\)"),
        (["--student-arch", "transformer", "--pooling", "mean"], "--pooling mean is for ffn \\(got transformer\\)"),
        (["--student-arch", "conv", "--kernel-width", "4"], "--kernel-width: a window is centred .* odd \\(got 4\\)"),
        (["--student-arch", "conv", "--kernel-width", "257"], "--kernel-width"),
        (["--student-arch", "recursive", "--share", "attention"], "--share attention: a recursive has one layer"),
        (["--student-arch", "rnn", "--share", "feed-forward"], "a rnn has no layers that could share a part"),
        (["--student-arch", "rnn", "--no-segments"], "--no-segments: a rnn has no segment embeddings"),
    ],
)
def test_contradictions_are_refused_at_construction(words, message):
    with pytest.raises(UserError, match=message):
        settings_of(*words)


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
    assert settings_of("--student-arch", "ffn", *words).lr == pytest.approx(lr)


@pytest.mark.parametrize(
    ("words", "lr"),
    [
        ("--arch minilm", 1e-4),
        ("--arch mpnet", 3e-5),
        ("--arch mpnet --lr 0.1", 0.1),
        ("--arch mpnet --adapters 8", 1e-3),
        ("--arch roberta_base", 1e-5),
    ],
)
def test_an_encoders_learning_rate_is_its_own(words, lr):
    flags = ["--task", "sst-2", *words.split()]
    assert parse_flags(FinetuneSettings, flags, "test", teacher_defaults).lr == lr


def test_old_names_and_named_seeds_are_understood():
    settings = settings_of("--student-arch", "emb-ffn", "--seed-name", "feynman")
    assert (settings.student_arch, settings.seed) == ("ffn", 5111918)
    assert (settings.embedding_type, settings.loss) == ("hash", "temperature-softmax")


@pytest.mark.parametrize("arch", get_args(StudentArch))
def test_a_regressions_students_learn_by_mse(arch):
    words = ["--task", "sts-b", "--student-arch", arch]
    assert parse_flags(CompressSettings, words, "test", defaults_for).loss == "mse"


def test_fp16_contradicts_another_precision():
    with pytest.raises(UserError, match="--fp16 contradicts --precision bf16"):
        parse_flags(FinetuneSettings, ["--task", "sst-2", "--fp16", "--precision", "bf16"], "test")


def test_a_seed_and_a_seeds_name_exclude_each_other(tmp_path):
    (tmp_path / "run.yaml").write_text("seed_name: feynman\n")
    with pytest.raises(UserError, match="--seed and --seed-name exclude each other"):
        settings_of("--config", str(tmp_path / "run.yaml"), "--seed", "3")


def test_choices_among_numbers_are_read_from_words():
    settings = settings_of("--compression-actions", "distill", "quantize", "--bits", "4", "--bits-encoder", "2")
    assert (settings.bits, settings.bits_encoder, settings.bits_embedding) == (4, 2, None)
    with pytest.raises(UserError, match="--bits: should be 16, 8, 6, 4, 3 or 2"):
        settings_of("--bits", "5")


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("compress", {"load_trained_model": 5}, "--load-trained-model: should be a valid string"),
        ("compress", {"compression_actions": 5}, "--compression-actions: should be a list"),
        ("compress", {"student_arch": ["bilstm"]}, "--student-arch"),
        ("finetune", {"arch": "roberta_base", "task": ["sst-2"]}, "--task: should be a valid string"),
    ],
)
def test_values_of_a_wrong_type_in_a_file_are_named(kind, given, message):
    with pytest.raises(UserError, match=message):
        Job(kind, {"task": "sst-2", **given}).settings()


def test_adapters_of_width_zero_change_no_default():
    rates = [teacher_defaults({"task": "sst-2", "adapters": width}).get("lr") for width in ("0", 0, "8")]
    assert rates == [None, None, 1e-3]


@pytest.mark.parametrize(
    ("arch", "task", "optimizer", "lr", "batch_size", "pooling"),
    [
        ("bilstm", "sst-2", "adadelta", 1.0, 50, "last"),
        ("bilstm", "qqp", "adadelta", 1.0, 256, "last"),
        ("rnn", "sst-2", "adam", 1e-4, 50, "last"),
        ("rnn", "mnli", "adam", 1e-4, 256, "last"),
        ("ffn", "qqp", "adam", 1e-4, 50, "mean"),
    ],
)
def test_one_flag_trains_as_the_thesis_does(arch, task, optimizer, lr, batch_size, pooling):
    settings = settings_of("--recipe", "thesis", "--student-arch", arch, "--task", task)
    found = (settings.optimizer, settings.lr, settings.batch_size, settings.pooling)
    assert found == (optimizer, lr, batch_size, pooling)
    assert (settings.schedule, settings.max_grad_norm) == ("constant", 0)
    given = settings_of(
        "--recipe", "thesis", "--student-arch", arch, "--task", task, "--batch-size", "100", "--lr", "0.5"
    )
    assert (given.batch_size, given.lr, given.optimizer) == (100, 0.5, optimizer)


def test_the_thesis_has_no_recipe_for_other_students():
    with pytest.raises(UserError, match=r"--recipe thesis is for bilstm, rnn, ffn \(got gru\)"):
        settings_of("--recipe", "thesis", "--student-arch", "gru")


@pytest.mark.parametrize(
    ("changes", "name"), [({}, "enc"), ({"frozen": True}, "enc-frozen"), ({"model_name": "t"}, "t")]
)
def test_a_teacher_is_named_after_the_folder_that_dots_stand_for(tmp_path, monkeypatch, changes, name):
    (tmp_path / "enc" / "inner").mkdir(parents=True)
    for folder, arch in (("enc", "."), ("enc/inner", "..")):
        monkeypatch.chdir(tmp_path / folder)
        assert FinetuneSettings(task="sst-2", arch=arch, **changes).name == name
