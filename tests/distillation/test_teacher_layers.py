"""Students that start from a teacher's layers or learn its hidden states: with all layers copied, they are it."""

import json

import numpy as np
import pytest
import tiny
import torch
from stops import stopped_in_step
from transformers import MPNetConfig, MPNetModel, PreTrainedModel

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.huggingface.pretrained import load_general
from common.teachers.huggingface.teacher import hidden_states
from common.teachers.load import load_teacher
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.distillation.alignment import Aligner, AlignmentTeacher, aligned_layers
from compression.distillation.distill import Distill, distill
from compression.shrinking.settings import CompressSettings
from compression.students.init import layers_to_copy, start_from_teacher
from compression.students.scoring import encode_split
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary

CPU = torch.device("cpu")
ALL_WEIGHTS = {"align_hidden": 1.0, "align_attention": 1.0, "align_embedding": 1.0}
LABELS_ALONE = {"alpha": 1.0, "only_original_data": True}


@pytest.fixture
def teacher(prepared):
    return prepared / "models/sst-2/tiny-bert"


def settings_of(**given):
    return CompressSettings(**{"task": "sst-2", "align_hidden": 1.0, **given})


def shape(teacher, **more):
    """Settings of a student with the teacher's shape."""
    config = json.loads((teacher / "huggingface/config.json").read_text())
    own = {"encoder_hidden_dim": config["hidden_size"], "embedding_dim": config["hidden_size"], "dropout": 0.0}
    own |= {"heads": config["num_attention_heads"], "intermediate_dim": config["intermediate_size"], "max_tokens": 40}
    own |= {"student_arch": "transformer", "layers": config["num_hidden_layers"], "embedding_type": "wordpiece"}
    return {**own, "cls_hidden_dim": 5, **more}


def fresh(teacher, pair=False, **more):
    """A student of random weights, its settings and its tokenizer."""
    tokenizer = teacher_vocabulary(teacher).tokenizer(40)
    settings = settings_of(**shape(teacher, vocab_size=tokenizer.vocab_size, **more))
    torch.manual_seed(1)
    return Student(settings.student_arch, settings.part(StudentSettings), 2, pair).eval(), settings, tokenizer


def rows_of(prepared, task):
    return load_split(Workspace(prepared), load_task(task), "test").take(np.arange(9))


def traced(student, tokenizer, split):
    with torch.no_grad():
        return student.traced(encode_split(tokenizer, split).batch(np.arange(len(split)), CPU))[1]


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
@pytest.mark.parametrize("compared", ["scores", "probabilities"])
def test_with_all_its_layers_a_student_is_the_teacher_and_nothing_is_left_to_align(prepared, task, compared):
    folder = prepared / "models" / task / "tiny-bert"
    split = rows_of(prepared, task)
    student, settings, tokenizer = fresh(folder, task == "qqp", **ALL_WEIGHTS, attention_states=compared)
    alignment_teacher = AlignmentTeacher.load(folder, CPU)
    batch = encode_split(tokenizer, split).batch(np.arange(9), CPU)

    def loss(**given):
        aligner = Aligner(
            settings.model_copy(update=given), settings.student_arch, settings, alignment_teacher, settings.epochs
        )
        return aligner.loss(student.traced(batch)[1], aligner.states(batch)).item()

    assert loss() > 0.1
    start_from_teacher(student, settings.part(StudentSettings), range(settings.layers), folder)
    assert loss() < 1e-6
    ours, theirs = traced(student, tokenizer, split), load_teacher(folder, CPU, torch.float32).states(split)
    assert torch.equal(ours.lengths, theirs.lengths)
    mask = torch.arange(int(ours.lengths.max())) < ours.lengths[:, None]
    for one, other in zip(ours.hidden, theirs.hidden, strict=True):
        assert torch.allclose(one[mask], other[mask], atol=1e-5)
    for one, other in zip(ours.attention, theirs.attention, strict=True):
        assert torch.allclose(one.transpose(1, 2)[mask], other.transpose(1, 2)[mask], atol=1e-5)
    with torch.no_grad():
        student.encoder.blocks[0].attention.query.weight.value.zero_()
    none = dict.fromkeys(ALL_WEIGHTS, 0.0)
    assert [loss(**{**none, name: 1.0}) > 1e-6 for name in ALL_WEIGHTS] == [True, True, False]


def test_attention_is_compared_before_the_softmax_unless_probabilities_are_asked_for(prepared):
    """A constant added to all scores of a query, here by the keys' bias, leaves their softmax as it is."""
    folder = prepared / "models/sst-2/tiny-bert"

    def change_by_a_bias(**given):
        student, settings, tokenizer = fresh(folder, **{"align_hidden": 0.0, "align_attention": 1.0, **given})
        aligner = Aligner(
            settings, settings.student_arch, settings, AlignmentTeacher.load(folder, CPU), settings.epochs
        )
        batch = encode_split(tokenizer, rows_of(prepared, "sst-2")).batch(np.arange(9), CPU)
        losses = []
        for bias in (0.0, 5.0):
            with torch.no_grad():
                student.encoder.blocks[0].attention.key.bias.fill_(bias)
            losses.append(aligner.loss(student.traced(batch)[1], aligner.states(batch)).item())
        return abs(losses[1] - losses[0])

    assert change_by_a_bias() > 1e-3
    assert change_by_a_bias(attention_states="scores") > 1e-3
    assert change_by_a_bias(attention_states="probabilities") < 1e-5
    assert change_by_a_bias(attention_loss="kl") < 1e-5


def test_the_last_states_alone_are_compared_whatever_the_number_of_layers(teacher, prepared):
    """DistilBERT's cosine loss: the mean over tokens of 1 - cosine, here worked out row by row."""
    given = {"align_hidden": 0.0, "align_last": 2.0, "hidden_loss": "cosine", "layers": 3}
    student, settings, tokenizer = fresh(teacher, **given)
    aligner = Aligner(settings, settings.student_arch, settings, AlignmentTeacher.load(teacher, CPU), settings.epochs)
    batch = encode_split(tokenizer, rows_of(prepared, "sst-2")).batch(np.arange(9), CPU)
    trace, states = student.traced(batch)[1], aligner.states(batch)
    tokens = [
        1 - (ours @ theirs / ours.norm() / theirs.norm()).item()
        for row, length in enumerate(trace.lengths.tolist())
        for ours, theirs in zip(trace.hidden[3][row, :length], states.hidden[1][row, :length], strict=True)
    ]
    assert aligner.loss(trace, states).item() == pytest.approx(2 * np.mean(tokens), rel=1e-5)


@pytest.mark.parametrize("compared", ["scores", "probabilities"])
def test_padding_has_no_part_in_the_loss_of_attention(prepared, compared):
    """What students and teachers have there is replaced, in the keys' columns and in the queries' rows."""
    folder = prepared / "models/sst-2/tiny-bert"
    settings = {"align_hidden": 0.0, "align_attention": 1.0, "attention_states": compared}
    student, settings, tokenizer = fresh(folder, **settings)
    aligner = Aligner(settings, settings.student_arch, settings, AlignmentTeacher.load(folder, CPU), settings.epochs)
    batch = encode_split(tokenizer, rows_of(prepared, "sst-2")).batch(np.arange(9), CPU)
    (_, trace), states = student.traced(batch), aligner.states(batch)
    usual = aligner.loss(trace, states).item()
    padding = torch.arange(int(trace.lengths.max())) >= trace.lengths[:, None]
    assert padding.any()
    queries = padding[:, None, :, None]
    keys = queries.transpose(2, 3) & torch.tensor(compared == "scores")  # probabilities are zero there
    for tensor in (trace.scores[0], trace.attention[0], states.attention[0]):
        tensor.detach().masked_fill_(queries | keys, 1e9)
    assert aligner.loss(trace, states).item() == usual


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra"])
def test_teachers_of_several_kinds_give_the_scores_that_their_attention_maps_are_the_softmax_of(tmp_path, kind):
    teacher = load_general(str(tiny.write_masked_lm(tmp_path / kind, kind))).model.eval()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    arguments = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 5, 1, 1]]), "attention_mask": mask}
    usual = teacher.config._attn_implementation
    scores, maps = (hidden_states(teacher, arguments, what) for what in ("scores", "probabilities"))
    assert teacher.config._attn_implementation == usual
    softmax = scores.attention[0].masked_fill(mask[:, None, None] == 0, float("-inf")).softmax(-1)
    assert torch.allclose(softmax, maps.attention[0], atol=1e-6)
    assert torch.allclose(scores.hidden[-1][0], maps.hidden[-1][0], atol=1e-6)
    assert scores.attention[0].min() < 0


def test_a_teacher_that_gives_no_scores_is_refused():
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 9}
    config = MPNetConfig(**sizes, num_hidden_layers=1, num_attention_heads=2)
    arguments = {"input_ids": torch.ones(1, 3, dtype=torch.long), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    with pytest.raises(UserError, match=r"mpnet has no attention scores.*--attention-states probabilities"):
        hidden_states(MPNetModel(config).eval(), arguments, "scores")


def test_divergences_of_scores_are_refused():
    with pytest.raises(ValueError, match="--attention-loss kl compares probabilities, not --attention-states scores"):
        settings_of(attention_loss="kl", attention_states="scores")


def test_a_full_rank_factorisation_is_the_embedding_itself(teacher, prepared):
    """One dimension short of full, little is lost; a recursive student has the one layer it was given."""
    width = shape(teacher)["encoder_hidden_dim"]

    def states(dim):
        student, settings, tokenizer = fresh(teacher, student_arch="recursive", iterations=1, embedding_dim=dim)
        start_from_teacher(student, settings.part(StudentSettings), [0], teacher)
        return traced(student, tokenizer, rows_of(prepared, "sst-2")).hidden[-1]

    whole = states(width)
    assert (states(width - 1) - whole).abs().mean() < 0.3 * (states(1) - whole).abs().mean()


@pytest.mark.parametrize(
    ("depth", "how", "layers"),
    [(2, ["first"], [0, 1]), (2, ["last"], [4, 5]), (3, ["every-other"], [0, 2, 4]), (2, ["5", "0"], [5, 0])],
)
def test_layers_to_copy(depth, how, layers):
    assert layers_to_copy(how, depth, 6) == layers


@pytest.mark.parametrize(
    ("depth", "how", "message"),
    [
        (4, ["every-other"], "3 of the teacher's 6 layers for 4 of the student's"),
        (7, ["last"], "layers for 7 of the student's"),
        (1, ["6"], "1 of the teacher's 6 layers for 1"),
        (1, ["middle"], "or numbers of layers"),
    ],
)
def test_layers_that_cannot_be_copied_are_refused(depth, how, message):
    with pytest.raises(UserError, match=message):
        layers_to_copy(how, depth, 6)


def aligned(teacher_depth, depth, *how, **more):
    settings = settings_of(layers=depth, layer_map=how or ("uniform",), **more)
    return aligned_layers(settings, settings.student_arch, settings, teacher_depth)


@pytest.mark.parametrize(
    ("given", "layers"),
    [
        ((12, 4), [2, 5, 8, 11]),  # TinyBERT's g(m) = 3m
        ((6, 4), [1, 2, 4, 5]),
        ((6, 6), [0, 1, 2, 3, 4, 5]),
        ((6, 1), [5]),
        ((6, 2, "last"), [4, 5]),
        ((6, 3, "0", "0", "5"), [0, 0, 5]),
    ],
)
def test_layers_to_align_with(given, layers):
    assert aligned(*given) == layers


def test_layer_maps_count_iterations_and_are_empty_where_no_layers_are_compared():
    assert aligned(6, 1, "last", student_arch="recursive", iterations=3, heads=5) == [3, 4, 5]
    assert aligned(6, 7, align_hidden=0.0, align_embedding=1.0) == []


@pytest.mark.parametrize("how", [["uniform"], ["last"], ["0"] * 6, ["6"] * 7])
def test_layer_maps_that_do_not_fit_are_refused(how):
    with pytest.raises(UserError, match="of the teacher's 6 layers for 7 of the student's"):
        aligned(6, 7, *how)
    with pytest.raises(UserError, match="--layer-map middle: give uniform, last, or numbers"):
        aligned(6, 1, "middle")


def test_layers_may_be_numbers():
    assert settings_of(layer_map=[0, 2]).layer_map == settings_of(layer_map=("0", "2")).layer_map == ("0", "2")
    assert settings_of(init_from_teacher=1).init_from_teacher == ("1",)


def distilled(workspace, **given):
    values = {"batch_size": 16, "lr": 1e-3, "epochs": 1, **given}
    return distill(tiny.compress_settings(task="sst-2", workspace=workspace, **values))


def test_distilling_starts_from_the_teacher(workspace, teacher):
    given = {"init_from_teacher": ["first"], "weight_decay": 0.0, "lr": 1e-30}
    config = read_config(distilled(workspace, **shape(teacher, **given)))
    assert config.student["vocab_size"] == len(teacher_vocabulary(teacher).pieces)


@pytest.mark.slow
def test_epochs_that_only_align_are_resumed_after_a_stop(workspace, teacher):
    """With another width than the teacher's: the projection is trained, and restored after a stop."""
    width = 2 * shape(teacher)["heads"]
    given = shape(teacher, layers=1, encoder_hidden_dim=width, embedding_dim=width, hidden_loss="cosine")
    given |= {**ALL_WEIGHTS, "align_first": 2, "align_embedding": 0.5, "model_name": "s", "force": True}
    whole = distilled(workspace, **given)
    weights = (whole / "model.safetensors").read_bytes()
    losses = [json.loads(line)["loss"] for line in (whole / "history.jsonl").read_text().splitlines()]
    assert len(losses) == 3
    assert losses[1] < losses[0]
    for stop in (5, 14, 14):  # once in each epoch: an attempt counts from where it goes on
        with stopped_in_step(stop):
            distilled(workspace, **given)
    assert (distilled(workspace, **given) / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(("hidden_loss", "attention_loss"), [("mse", "mse"), ("cosine", "kl")])
def test_training_in_bf16_follows_that_in_fp32(workspace, teacher, hidden_loss, attention_loss):
    """Weights stay float32; steps differ by rounding."""
    given = shape(teacher, **ALL_WEIGHTS, hidden_loss=hidden_loss, attention_loss=attention_loss, layers=1)
    weights, losses = {}, {}
    for precision in ("fp32", "bf16"):
        folder = distilled(workspace, **given, precision=precision, model_name=precision)
        weights[precision] = load_weights(folder)
        losses[precision] = json.loads((folder / "history.jsonl").read_text().splitlines()[0])["loss"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["bf16"] != losses["fp32"]
    assert {tensor.dtype for tensor in weights["bf16"].values()} == {torch.float32}


def test_epochs_after_those_that_only_align_learn_logits_alone(workspace, teacher):
    """As TinyBERT's last phase; --align-throughout keeps the alignment loss."""
    given = shape(teacher, align_hidden=1e4, epochs=2, align_first=1, lr=1e-6)

    def losses(**more):
        folder = distilled(workspace, **{**given, **more})
        return [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]

    first, *later = losses(model_name="phases")
    assert first > 1e3
    assert max(later) < 100
    assert min(losses(model_name="throughout", align_throughout=True)) > 1e3
    assert min(losses(model_name="joint", align_first=0)) > 1e3


@pytest.mark.parametrize("goal", [{"align_hidden": 1.0}, {"init_from_teacher": ["first"]}])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"student_arch": "bilstm"}, "a bilstm has no layers"),
        ({"embedding_type": "char"}, "needs the teacher's word pieces"),
        (LABELS_ALONE, "--embedding-type wordpiece needs a teacher, but none is used"),
    ],
)
def test_students_without_the_teachers_pieces_or_layers_are_refused(workspace, teacher, goal, wrong, message):
    with pytest.raises(UserError, match=message):
        distilled(workspace, **shape(teacher, **goal, **wrong))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"align_hidden": 1.0, "layer_map": ("7",)}, "--layer-map 7: 1 of the teacher's"),
        ({"align_attention": 1.0, "heads": 1}, "needs as many heads as"),
        ({"init_from_teacher": ["first"], "heads": 1}, "set --heads"),
        ({"init_from_teacher": ["first"], "encoder_hidden_dim": 32}, "set --hidden-dim"),
        ({"init_from_teacher": ["first"], "embedding_dim": 32}, "is 16 wide: set --embedding-rank 16 or less"),
    ],
)
def test_layers_of_other_shapes_are_refused(workspace, teacher, wrong, message):
    with pytest.raises(UserError, match=message):
        distilled(workspace, **shape(teacher, **wrong))


def test_epochs_that_only_align_need_something_to_align():
    with pytest.raises(ValueError, match="--align-first needs something to align"):
        settings_of(align_hidden=0.0, align_first=1)


def test_alignment_throughout_needs_epochs_that_only_align():
    with pytest.raises(ValueError, match="--align-throughout has no effect without --align-first: every epoch aligns"):
        settings_of(align_throughout=True)


def test_a_teacher_that_cannot_give_attention_maps_says_why(workspace, teacher, monkeypatch):
    def refuse(model, kind):
        raise ValueError("this model has none that can be looked at")

    monkeypatch.setattr(PreTrainedModel, "set_attn_implementation", refuse)
    given = shape(teacher, align_hidden=1.0)
    for states, instead in (("scores", "--attention-states probabilities"), ("probabilities", "--align-attention 0")):
        with pytest.raises(UserError, match=f"bert has no attention .*: this model has none .*{instead}"):
            distilled(workspace, **given, align_attention=1.0, attention_states=states)
    assert distilled(workspace, **given, align_attention=0.0).exists()


def test_a_step_has_alignment_where_something_is_aligned():
    unaligned = [CompressSettings(task="sst-2", teacher="t", attention_loss=loss) for loss in ("kl", "mse")]
    assert Distill.of(unaligned[0]) == Distill.of(unaligned[1])
    changes = ({}, {"align_hidden": 2.0}, {"attention_loss": "kl"})
    steps = [Distill.of(settings_of(teacher="t", **more)) for more in changes]
    assert all(step.align for step in steps)
    assert len({str(step) for step in steps}) == 3
