"""A student that aligns pairs goes through every action, and its packed file answers as it does."""

import numpy as np
import packed_students as packed
import pytest
import shrunk

from compression.distillation.pruning import TARGETS, prunable
from compression.packing import pack_student
from compression.runtime.model import load_bytes
from compression.students.saved import load_student
from compression.students.weights import Product

PAIRS = [
    ("how do i paint a house", "what is the way to paint my house ?"),
    ("", "boat"),
    ("sell a piano in 3 days",) * 2,
]


def check(folder):
    """The packed file of a student gives its logits, in either order of the texts."""
    model = load_bytes(pack_student(folder))
    assert np.abs(model.logits(PAIRS) - packed.torch_logits(folder, PAIRS)).max() < 1e-4
    assert np.abs(model.logits(PAIRS) - model.logits([(b, a) for a, b in PAIRS])).max() < 1e-5
    shrunk.check_saved_again(folder)


@pytest.mark.parametrize("how", ["align", "compose"])
@pytest.mark.parametrize("arch", ["bilstm", "conv"])
def test_every_action_follows_the_others(workspace, arch, how):
    given = {"student_arch": arch, "vocab_size": 100, "pair_encoder": how, "symmetric": True, "bits": 4}
    given |= {"rank": 3, "prune_units": 0.4, "prune_vocabulary": 3, "tune_epochs": 1, "dq_encoder": True}
    folders = shrunk.compressed(workspace, "distill", "factorize", "prune", "quantize", task="qqp", **given)
    net, _, config = load_student(folders[0], shrunk.CPU)
    assert folders[0].name.startswith(f"{arch}-{how}-bpe6-")
    assert config.student["symmetric"]
    width = 10 if arch == "bilstm" else 5
    compared = 5 if how == "compose" else width
    assert net.encoder.alignment.fusion.weight.value.shape == (compared, 4 * (width + 6))
    assert isinstance(shrunk.loaded(folders[1]).encoder.alignment.fusion.weight, Product)
    pruned, _, config = load_student(folders[2], shrunk.CPU)
    assert config.student["encoder_hidden_dim"] == 3
    compared, width = 3 * compared // 5, 3 * width // 5
    assert tuple(pruned.encoder.alignment.fusion.weight.dense().shape) == (compared, 4 * (width + 6))
    assert "encoder.alignment.fusion.weight.left" in load_student(folders[3], shrunk.CPU)[2].compression["quantized"]
    for folder in folders[:3]:
        check(folder)


def test_what_tokens_are_compared_by_is_pruned_as_a_linear_layer():
    parts = prunable(shrunk.fresh("bilstm", pair=True, pair_encoder="align", pooling="max"))
    kinds = {part.name: part.kind for part in parts}
    assert kinds["encoder.alignment.fusion.weight"] == "linear"
    assert kinds["encoder.forward_rnn.weight_ih"] == "bilstm"
    assert set(kinds.values()) <= TARGETS.keys()
