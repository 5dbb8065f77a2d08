"""Students that are made smaller: a fresh one, or by the settings of compress.py in a workspace."""

import numpy as np
import tiny
import torch
from stages import logits_of

from common.config import parse_flags
from common.data.split import load_split
from common.data.tasks import load_task
from common.kinds.ragged import EncodedText
from common.store.workspace import Workspace
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings, defaults_for
from compression.students.batch import EncodedRows
from compression.students.saved import load_student
from compression.students.scoring import student_logits
from compression.students.settings import StudentSettings
from compression.students.student import Student

CPU = torch.device("cpu")
STUDENTS = {"bilstm": "bpe", "gru": "char", "rnn": "char", "ffn": "hash", "conv": "bpe"}
"""Architecture -> embedding of the students that tests/shrinking/conftest.py distils; their names are architectures."""


def fresh(arch="bilstm", embedding="bpe", pair=False, outputs=2, **sizes):
    """A student with random weights, always the same."""
    torch.manual_seed(1)
    own = {"embedding_dim": 6, "vocab_size": 40, "encoder_hidden_dim": 5, "cls_hidden_dim": 7}
    own |= {"pooling": tiny.POOLINGS[arch][-1], "heads": 1, "layers": 2, "intermediate_dim": 8}
    return Student(arch, StudentSettings(embedding_type=embedding, **{**own, **sizes}), outputs, pair).eval()


def random_rows(columns=1, rows=32, pieces=30):
    """Rows of texts of one to eight random pieces, always the same."""
    rng = np.random.default_rng(2)
    texts = [[rng.integers(0, pieces, n).tolist() for n in rng.integers(1, 9, rows)] for _ in range(columns)]
    return EncodedRows(*(EncodedText.from_lists(ids, 1, (0,), 40) for ids in texts))


def logits_over(student, rows):
    """A student's logits over encoded rows."""
    return torch.from_numpy(student_logits(student, rows, CPU))


def compressed(workspace, *actions, task="sst-2", **given):
    """Folders of the models that actions of compress.py build; distilling learns one epoch of labels."""
    values = tiny.small(**{"alpha": 1.0, "only_original_data": True, "epochs": 1, **given})
    return compress(tiny.compress_settings(task=task, workspace=workspace, compression_actions=actions, **values))


def shrunk(workspace, action, student, **given):
    """Folder of the model that an action builds from the student of a name."""
    return compressed(workspace, action, load_trained_model=student, **given)[0]


def smaller(workspace, name, *words):
    """Folder of the model that compress.py's flags build from the student of a name."""
    flags = ["--task", "sst-2", "--workspace", str(workspace), "--load-trained-model", name, "--cpu", *words]
    return compress(parse_flags(CompressSettings, [*flags, "--no-loadbar"], "", defaults_for))[-1]


def loaded(folder):
    """The student of a folder."""
    return load_student(folder, CPU)[0]


def logits(folder, workspace, task="sst-2", rows="test"):
    """Logits of the student of a folder over a split, float32 [n, outputs]."""
    return logits_of(folder, load_split(Workspace(workspace), load_task(task), rows))


def weights_file(folder):
    """Bytes of a student's weights."""
    return (folder / "model.safetensors").read_bytes()


def check_saved_again(folder):
    """A student that is loaded and saved again has the same files."""
    copy = folder.with_name(f"copy of {folder.name}")
    student, tokenizer, config = load_student(folder, CPU)
    tiny.save_student(copy, student, tokenizer, **config.facts())
    files = {path.name: path.read_bytes() for path in copy.iterdir() if path.name != "manifest.json"}
    assert "model.safetensors" in files
    assert files == {name: (folder / name).read_bytes() for name in files}
