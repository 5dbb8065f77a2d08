"""A transformer whose layers share a part, without segments, goes through every action; its file answers as it does."""

import numpy as np
import packed_students as packed
import pytest
import shrunk

from compression.packing import pack_student
from compression.runtime.model import load_bytes
from compression.students.saved import load_student

PAIRS = [("how do i paint a house", "what is the way to paint my house ?"), ("", "boat"), ("sell a piano",) * 2]


@pytest.mark.slow
def test_every_action_follows_the_others(workspace):
    given = {"student_arch": "transformer", "vocab_size": 100, "share": "feed-forward", "segments": False, "layers": 3}
    given |= {"encoder_hidden_dim": 6, "heads": 2, "intermediate_dim": 10, "rank": 3}
    given |= {"prune_units": 0.4, "prune_heads": 0.5, "drop_layers": 1, "bits": 4}
    folders = shrunk.compressed(workspace, "distill", "factorize", "prune", "quantize", task="qqp", **given)
    for folder, depth in zip(folders, (3, 3, 2, 2), strict=True):
        net, _, config = load_student(folder, shrunk.CPU)
        assert (config.student["share"], config.student["segments"]) == ("feed-forward", False)
        owners = {part: [hasattr(block, part) for block in net.encoder.blocks] for part in ("attention", "up")}
        assert owners == {"attention": [True] * depth, "up": [True] + [False] * (depth - 1)}
        model = load_bytes(pack_student(folder))
        assert np.abs(model.logits(PAIRS) - packed.torch_logits(folder, PAIRS)).max() < 1e-4
        shrunk.check_saved_again(folder)
    left = load_student(folders[2], shrunk.CPU)[2].student
    assert {"intermediate_dim": 6, "heads": 1, "head_dim": 3, "layers": 2}.items() <= left.items()
