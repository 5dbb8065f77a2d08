"""Fixtures: tiny corpora in GLUE's layout, a tiny encoder, tiny GloVe vectors, a workspace with every stage done."""

import os
import signal
import sys

# Before anything imports torch: tests share their machine, and tiny models gain nothing from threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import c_runtime
import hypothesis
import pytest
import tiny
import tiny_glue
import tiny_questions
import tiny_tags

# Tests interrupt commands; a shell in the background hands down that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No time limits on a shared machine, and the same examples on every run.
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tests")


TRAINED = {"prepared", "swept", "roberta", "taught"}
"""Fixtures that train models for longer than a second."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests as slow that use a trained model."""
    for item in items:
        if TRAINED & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def quiet():
    from common.progress import show_bars

    show_bars(False)


@pytest.fixture(scope="session")
def glue(tmp_path_factory):
    """Folder of all shipped tasks' files in small, but for what a package ships."""
    folder = tiny_tags.write_biomedical(tiny_glue.write_rest(tiny.write_glue(tmp_path_factory.mktemp("glue"))))
    return tiny_questions.write_shipped(folder)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Folder of a tiny BERT, not fine-tuned."""
    return tiny.write_encoder(tmp_path_factory.mktemp("encoder") / "tiny-bert")


@pytest.fixture(scope="session")
def masked_lm(tmp_path_factory):
    """Folder of a tiny BERT with a masked-language-modelling head. To be read, not written."""
    return tiny.write_masked_lm(tmp_path_factory.mktemp("masked-lm") / "bert")


@pytest.fixture(scope="session")
def glove(tmp_path_factory):
    """Text file of tiny word vectors."""
    return tiny.write_glove(tmp_path_factory.mktemp("glove") / "glove.txt")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, glue, encoder, glove):
    """Workspace with splits, teacher tiny-bert, augmented rows and logits of sst-2 and qqp. To be read, not written."""
    import torch

    from common.progress import show_bars

    torch.set_num_threads(1)
    show_bars(False)
    workspace = tmp_path_factory.mktemp("prepared") / "workspace"
    for task in ("sst-2", "qqp"):
        tiny.teach(workspace, task, encoder, glove, variants=2, data_dir=glue)
    return workspace


@pytest.fixture
def workspace(prepared, tmp_path):
    """A copy of the prepared workspace for a test to write in."""
    return tiny.copy_workspace(prepared, tmp_path / "workspace")


@pytest.fixture
def short_fits(monkeypatch):
    """The students of a fit learn for a few epochs, and one variation of the best is tried."""
    from compression.experiments.fit import search

    monkeypatch.setattr(search, "_STEPS", 100)
    monkeypatch.setattr(search, "_USUAL_EPOCHS", (5, 12))
    monkeypatch.setattr(search, "_TUNE_EPOCHS", 1)
    monkeypatch.setattr(search, "VARIATIONS", search.VARIATIONS[:1])


@pytest.fixture(scope="module")
def ends_ray():
    """Ends the Ray cluster that a module's tests have started on this machine."""
    yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


@pytest.fixture(scope="session")
def swept(prepared, tmp_path_factory):
    """A workspace with a sweep of two cells and two seeds, and its grid file. To be read, not written."""
    import sweep_grid

    folder = tmp_path_factory.mktemp("swept")
    workspace = tiny.copy_workspace(prepared, folder / "workspace")
    path = sweep_grid.write_grid(folder)
    sweep_grid.sweep(path, sweep_grid.settings(workspace))
    return workspace, path


@pytest.fixture(scope="session")
def c_library():
    """The C runtime's library is built, and is the one that Python loads."""
    from compression.runtime import native

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(native, "LIBRARY", str(c_runtime.built("libfeatherweight.so")))
        yield
    c_runtime.remove()
