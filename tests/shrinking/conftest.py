"""Fixtures: a workspace with the students of `shrunk.STUDENTS`, one that has learned its task, and one of pairs."""

import pytest
import shrunk
import tiny


@pytest.fixture(scope="session")
def distilled(prepared, tmp_path_factory):
    """The prepared workspace with students bilstm, gru, rnn, ffn, conv and learned, and rnn of qqp. To be read only."""
    workspace = tiny.copy_workspace(prepared, tmp_path_factory.mktemp("distilled") / "workspace")
    for arch, embedding in shrunk.STUDENTS.items():
        given = {"student_arch": arch, "embedding_type": embedding, "vocab_size": 100, "model_name": arch}
        shrunk.compressed(workspace, "distill", **given)
        if arch == "rnn":
            shrunk.compressed(workspace, "distill", task="qqp", **given)
    learned = {"student_arch": "ffn", "embedding_type": "hash", "lr": 0.05, "epochs": 12, "patience": 12}
    shrunk.compressed(workspace, "distill", model_name="learned", **learned)
    return workspace


@pytest.fixture
def workspace(distilled, tmp_path):
    """A copy of the workspace with students for a test to write in."""
    return tiny.copy_workspace(distilled, tmp_path / "workspace")
