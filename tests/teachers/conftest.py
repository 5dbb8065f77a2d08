"""A small RoBERTa in both of fairseq's checkpoint formats, and a teacher fine-tuned from it."""

import pytest
import small_roberta
import tiny
import torch
from small_roberta import CPU, finetuned, settings

from common.store.workspace import Workspace
from common.teachers.load import load_teacher
from compression.augmentation.preprocess import preprocess


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    """Folder of a small RoBERTa as fairseq saves one."""
    return small_roberta.make(tmp_path_factory.mktemp("roberta") / "small")


@pytest.fixture(scope="session")
def old_roberta(tmp_path_factory, roberta):
    """The same weights as fairseq's official archives hold theirs."""
    return small_roberta.write_old_format(roberta, tmp_path_factory.mktemp("old") / "small")


@pytest.fixture(scope="session")
def taught(tmp_path_factory, glue, roberta):
    """Workspace with splits of sst-2 and teacher `small`, fairseq's checkpoint of which is next to it. To be read."""
    workspace = tmp_path_factory.mktemp("taught") / "workspace"
    preprocess(tiny.prepare_settings(workspace, "sst-2", data_dir=glue))
    finetuned(settings(workspace, roberta), workspace.parent / "best.pt")
    return workspace


@pytest.fixture(scope="session")
def teacher(taught):
    """The teacher `small`."""
    return load_teacher(Workspace(taught).model("sst-2", "small"), CPU, torch.float32)
