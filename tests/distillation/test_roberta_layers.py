"""Students of RoBERTa-type teachers: word pieces, layers, alignment and adapters."""

import numpy as np
import pytest
import roberta_teachers
import tiny
import torch
from packed_students import torch_logits
from safetensors.torch import load_file

from common.data.split import Split
from common.errors import UserError
from common.teachers.huggingface.pretrained import load_general
from common.teachers.huggingface.teacher import hidden_states
from common.teachers.load import load_teacher
from common.training.models import read_config
from compression.distillation.alignment import Aligner, AlignmentTeacher
from compression.evaluation.packed import load_packed
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings
from compression.students.batch import EncodedRows
from compression.students.init import check_start, start_from_teacher
from compression.students.scoring import encode_split
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.bytelevel import ByteLevelTokenizer
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary, vocabulary_of

CPU = torch.device("cpu")
ALIGNED = {"align_hidden": 1.0, "align_attention": 1.0, "align_embedding": 1.0}
SHAPE = {"student_arch": "transformer", "embedding_type": "wordpiece", "layers": 2, "encoder_hidden_dim": 16}
SHAPE |= {"embedding_dim": 16, "heads": 2, "intermediate_dim": 32, "cls_hidden_dim": 5, "max_tokens": 40}
SINGLE = Split([text for text, _ in tiny.sentences(9)], None, np.zeros(9, np.int64), np.arange(9))
PAIRS = Split(*map(list, zip(*[row[:2] for row in tiny.pairs(9)], strict=True)), np.zeros(9, np.int64), np.arange(9))


@pytest.fixture
def folder(tmp_path):
    """Model folder of a teacher for single texts."""
    return roberta_teachers.write_teacher(tmp_path / "roberta")


def fresh(folder, pair=False, **more):
    """A student of random weights, its settings and its tokenizer."""
    tokenizer = teacher_vocabulary(folder).tokenizer(40)
    given = {"task": "sst-2", "dropout": 0.0, "vocab_size": tokenizer.vocab_size, **SHAPE, **ALIGNED, **more}
    settings = CompressSettings(**given)
    torch.manual_seed(1)
    return Student("transformer", settings.part(StudentSettings), 2, pair).eval(), settings, tokenizer


@pytest.mark.parametrize("compared", ["scores", "probabilities"])
@pytest.mark.parametrize("segments", [True, False])
def test_with_all_its_layers_a_student_is_the_teacher_and_nothing_is_left_to_align(folder, compared, segments):
    student, settings, tokenizer = fresh(folder, segments=segments, attention_states=compared)
    check_start(settings, "transformer", folder)
    aligner = Aligner(settings, settings.student_arch, settings, AlignmentTeacher.load(folder, CPU), settings.epochs)
    batch = encode_split(tokenizer, SINGLE).batch(np.arange(9), CPU)

    def loss():
        return aligner.loss(student.traced(batch)[1], aligner.states(batch)).item()

    assert loss() > 0.1
    start_from_teacher(student, settings.part(StudentSettings), range(2), folder)
    assert loss() < 1e-5
    with torch.no_grad():
        ours, theirs = student.traced(batch)[1], load_teacher(folder, CPU, torch.float32).states(SINGLE)
    assert torch.equal(ours.lengths, theirs.lengths)
    mask = torch.arange(int(ours.lengths.max())) < ours.lengths[:, None]
    for one, other in zip(ours.hidden, theirs.hidden, strict=True):
        assert torch.allclose(one[mask], other[mask], atol=1e-3)
    for one, other in zip(ours.attention, theirs.attention, strict=True):
        assert torch.allclose(one.transpose(1, 2)[mask], other.transpose(1, 2)[mask], atol=1e-3)


@pytest.mark.parametrize("compared", ["scores", "probabilities"])
def test_of_a_pairs_two_separators_the_second_one_is_left_out(tmp_path, compared):
    folder = roberta_teachers.write_teacher(tmp_path / "roberta", pair=True)
    vocabulary, model = teacher_vocabulary(folder), load_teacher(folder, CPU, torch.float32).model.eval()
    tokenizer = vocabulary.tokenizer(40)
    batch = encode_split(tokenizer, PAIRS).batch(np.arange(9), CPU)
    found = AlignmentTeacher.load(folder, CPU).states(batch, compared)
    for number, texts in enumerate(zip(*PAIRS.sentences(), strict=True)):
        one, two = (vocabulary.rows[tokenizer.encode([text]).ids[:, 0]].tolist() for text in texts)
        ids = torch.tensor([[0, *one, 2, 2, *two, 2]])
        theirs = hidden_states(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, compared)
        length, second = ids.shape[1] - 1, len(one) + 2
        kept = [step for step in range(length + 1) if step != second]
        assert found.lengths[number] == length
        for ours, other in zip(found.hidden, theirs.hidden, strict=True):
            assert torch.allclose(ours[number, :length], other[0, kept], atol=1e-4)
        for ours, other in zip(found.attention, theirs.attention, strict=True):
            heads = ours[number, :, :length, :length]
            maps = other.softmax(-1) if compared == "scores" else other
            wanted = maps[0][:, kept]
            wanted[:, :, second - 1] += wanted[:, :, second]
            assert torch.allclose(heads.softmax(-1) if compared == "scores" else heads, wanted[:, :, kept], atol=1e-4)


def test_rows_longer_than_the_teachers_positions_are_refused(folder):
    """Two of the 98 positions are of padding."""
    teacher, tokenizer = AlignmentTeacher.load(folder, CPU), teacher_vocabulary(folder).tokenizer(200)
    for words, fits in ((94, True), (95, False)):
        split = Split(["!" * words], None, np.zeros(1, np.int64), np.zeros(1, np.int64))
        if len(tokenizer.encode(split.sentence1).ids) != words:
            pytest.fail("one token a sign")
        rows = encode_split(tokenizer, split)
        batch = rows.batch(np.zeros(1, np.int64), CPU)
        if fits:
            teacher.check_rows(rows)
            assert teacher.states(batch, None).lengths.tolist() == [96]
        else:
            for check in (lambda: teacher.check_rows(rows), lambda: teacher.states(batch, None)):  # noqa: B023
                with pytest.raises(UserError, match="a row has 97 tokens, but the teacher reads at most 96"):
                    check()
    one, two, three = (tokenizer.encode(["!" * count, "!"]) for count in (2, 90, 91))
    teacher.check_rows(EncodedRows(one, two))  # 92 signs and 4 special tokens
    with pytest.raises(UserError, match="a row has 97 tokens, but the teacher reads at most 96"):
        teacher.check_rows(EncodedRows(one, three))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Folder of a RoBERTa with a masked-language-modelling head."""
    return roberta_teachers.write_encoder(tmp_path_factory.mktemp("encoder") / "tiny-roberta", "RobertaForMaskedLM")


@pytest.fixture(scope="module")
def taught(tmp_path_factory, glue, encoder, glove):
    """Workspace with a RoBERTa teacher of sst-2 and its logits. To be read, not written."""
    workspace = tmp_path_factory.mktemp("taught-by-roberta") / "workspace"
    tiny.teach(workspace, "sst-2", encoder, glove, data_dir=glue, max_epochs=1)
    return workspace


def compressed(workspace, *actions, **given):
    values = {"task": "sst-2", "workspace": workspace, "compression_actions": actions or ("distill",), **SHAPE}
    values |= {"epochs": 1, "batch_size": 16, "teacher": "tiny-roberta", **given}
    return compress(tiny.compress_settings(**values))[-1]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["transformer", "bilstm"])
def test_a_student_of_a_roberta_is_pruned_quantized_and_packed(taught, tmp_path, arch):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    layers = {"init_from_teacher": ("0", "1"), **ALIGNED} if arch == "transformer" else {}
    given = {"student_arch": arch, "prune_vocabulary": 3, "bits": 8, **layers}
    folder = compressed(workspace, "distill", "prune", "quantize", "pack", **given)
    file = workspace / "packed/sst-2" / f"{folder.name}.fwt"
    texts = [*SINGLE.sentence1, "", "Caf\u00e9 \u4e2d\U0001f600 don't\tstop  now"]
    packed = load_packed(file)
    assert packed.embedding == "bpe"
    assert np.allclose(packed.logits(texts), torch_logits(folder, texts), atol=1e-4)


@pytest.mark.slow
def test_a_general_student_of_a_roberta_has_its_head_and_trains_adapters_alone(taught, tmp_path, encoder):
    workspace, corpus = tiny.copy_workspace(taught, tmp_path / "workspace"), tmp_path / "corpus.txt"
    corpus.write_text("\n".join(SINGLE.sentence1 * 3))
    start = {"teacher": str(encoder), "corpus": str(corpus), "model_name": "general", "next_sentence_weight": 1.0}
    general = compressed(workspace, "pretrain", **start, init_from_teacher=("0", "1"), lr=1e-30, epochs=1)
    teacher = load_general(str(encoder))
    rows = torch.from_numpy(vocabulary_of(teacher.tokenizer, "roberta").rows)
    table = load_file(general / "model.safetensors")["embedding.table.weight.value"]
    assert torch.allclose(table, teacher.model.get_input_embeddings().weight[rows], atol=1e-6)
    folder = compressed(workspace, "distill", start_from="general", adapters=4, adapter_tuning=True, **ALIGNED)
    config = read_config(folder)
    assert config.base == "models/general/general"
    assert config.trained_parameters < 1500
    assert isinstance(ByteLevelTokenizer.load(general, len(rows), 40), ByteLevelTokenizer)
