"""A teacher's hidden states and attention maps."""

import numpy as np
import pytest
import torch

from common.data.split import load_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from common.teachers.load import load_teacher


@pytest.mark.parametrize("name", ["sst-2", "qqp"])
def test_states_are_one_padded_batch_and_leave_the_teacher_as_it_was(prepared, name):
    paths, task = Workspace(prepared), load_task(name)
    teacher = load_teacher(paths.model(name, "tiny-bert"), torch.device("cpu"), torch.float32)
    train = load_split(paths, task, "train")
    before = teacher.logits(train)
    rows = train.take(np.array([3, 0, 40, 17]))
    states = teacher.states(rows)
    assert np.array_equal(teacher.logits(train), before)
    assert (len(states.hidden), len(states.attention)) == (2, 1)
    longest = int(states.lengths.max())
    assert states.hidden[0].shape[:2] == (4, longest)
    for row, length in enumerate(states.lengths.tolist()):
        alone = teacher.states(rows.take(np.array([row])))
        assert alone.lengths.tolist() == [length]
        assert torch.allclose(states.hidden[-1][row, :length], alone.hidden[-1][0], atol=1e-5)
        attention = states.attention[0][row, :, :length, :length]
        assert torch.allclose(attention, alone.attention[0][0], atol=1e-5)
        assert torch.allclose(attention.sum(-1), torch.ones(()), atol=1e-5)
