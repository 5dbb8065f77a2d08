"""Structured pruning of transformers: the heads that matter least go, as many in each layer, and the last layers."""

import pytest
import shrunk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shrunk import logits_over as logits
from shrunk import random_rows

from common.errors import UserError
from compression.shrinking.pruning.units import drop_layers, remove_heads

HEADS = 4
ARCHS = st.sampled_from(["transformer", "recursive"])


def student(arch="transformer", **more):
    sizes = {"embedding_dim": 8, "vocab_size": 30, "encoder_hidden_dim": 8, "cls_hidden_dim": 5, "heads": HEADS}
    sizes |= {"layers": 3, "iterations": 3, "intermediate_dim": 7, "adapters": 2}
    return shrunk.fresh(arch, "bpe", False, outputs=3, **sizes | more)


@settings(max_examples=12)
@given(arch=ARCHS, head_dim=st.sampled_from([0, 3]), share=st.sampled_from(["none", "attention"]), data=st.data())
def test_heads_that_nothing_reads_are_not_missed(arch, head_dim, share, data):
    net = student(arch, head_dim=head_dim, share=share if arch == "transformer" else "none")
    width, drop = head_dim or 2, data.draw(st.integers(1, HEADS - 1))
    for block in net.encoder.blocks:
        if hasattr(block, "attention"):
            for head in data.draw(st.permutations(range(HEADS)))[:drop]:
                block.attention.output.weight.value.data[:, head * width : (head + 1) * width] = 0
    before = logits(net, random_rows())
    assert remove_heads(net, drop / HEADS, random_rows()) == {"heads": HEADS - drop, "head_dim": width}
    assert torch.allclose(logits(net, random_rows()), before, atol=1e-5)
    shapes = {tuple(block.attention.query.weight.dense().shape) for block in net.encoder.blocks if "attention" in
              dict(block.named_children())}  # fmt: skip
    assert shapes == {((HEADS - drop) * width, 8)}


def test_the_head_that_matters_most_stays():
    net = student(layers=1)
    net.encoder.blocks[0].attention.output.weight.value.data[:, 2:4] *= 100
    value = net.encoder.blocks[0].attention.value.weight.dense()[2:4].clone()
    remove_heads(net, 0.75, random_rows())
    assert torch.equal(net.encoder.blocks[0].attention.value.weight.dense(), value)


@pytest.mark.parametrize(("arch", "name"), [("transformer", "layers"), ("recursive", "iterations")])
def test_the_first_layers_stay(arch, name):
    net, shallow = student(arch), student(arch, **{name: 1})
    assert drop_layers(net, 2) == {name: 1}
    weights = net.state_dict()
    assert weights.keys() == shallow.state_dict().keys()
    shallow.load_state_dict(weights)
    assert torch.equal(logits(net, random_rows()), logits(shallow, random_rows()))


def test_what_cannot_go_is_refused():
    with pytest.raises(UserError, match=r"--prune-heads 0\.9: none of 4 heads would be left"):
        remove_heads(student(), 0.9, random_rows())
    with pytest.raises(UserError, match="--drop-layers 3: none of 3 layers would be left"):
        drop_layers(student(), 3)
    for remove in (lambda net: remove_heads(net, 0.5, random_rows()), lambda net: drop_layers(net, 1)):
        with pytest.raises(UserError, match="only transformers have"):
            remove(student("bilstm"))
