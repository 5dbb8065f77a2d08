"""Structured pruning: units leave, the same number in each direction, and those that nothing reads change nothing."""

import pytest
import shrunk
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shrunk import logits_over as logits

from common.errors import UserError
from compression.shrinking.pruning.units import remove_units
from compression.students.layers import Recurrent
from compression.students.saved import load_student
from compression.students.weights import Dense, Product

HIDDEN, NEURONS = 6, 8


def student(arch, pair, pooling=None, **given):
    sizes = {"embedding_dim": 5, "vocab_size": 30, "encoder_hidden_dim": HIDDEN, "cls_hidden_dim": NEURONS}
    sizes |= {"heads": 2, "layers": 2, "iterations": 3, "intermediate_dim": 8, "adapters": 3}
    return shrunk.fresh(arch, "bpe", pair, outputs=3, pooling=pooling or tiny.POOLINGS[arch][0], **sizes, **given)


def text(pair):
    return shrunk.random_rows(1 + pair)


def silence(net, pair, units, neurons):
    """Zero every weight that reads some units of each layer of the encoder (a list each) and some neurons."""
    first, last = net.classifier[0].weight.value.data, net.classifier[3].weight.value.data
    last[:, neurons] = 0
    layers = list(net.encoder.children())
    for index, (layer, silent) in enumerate(zip(layers, units, strict=False)):
        if isinstance(layer, Recurrent):
            layer.weight_hh.value.data[:, silent] = 0
        for block in range(4 if pair else 1):
            first[:, [(block * len(layers) + index) * HIDDEN + unit for unit in silent]] = 0


def biases(net):
    """Of each layer of the encoder."""
    return [layer.bias_ih if isinstance(layer, Recurrent) else layer.bias for layer in net.encoder.children()]


@pytest.mark.parametrize("arch", ["bilstm", "gru", "rnn", "ffn", "conv"])
@pytest.mark.parametrize("pair", [False, True])
@settings(max_examples=6)
@given(data=st.data())
def test_units_that_nothing_reads_are_not_missed(arch, pair, data):
    drop = data.draw(st.integers(0, HIDDEN - 1)) / HIDDEN
    # abs(u - v) and max pooling read a unit's state; zeroed columns stop them all the same.
    net = student(arch, pair, data.draw(st.sampled_from(tiny.POOLINGS[arch])))
    units, others, neurons = (
        data.draw(st.permutations(range(width)))[: round(drop * width)] for width in (HIDDEN, HIDDEN, NEURONS)
    )
    silence(net, pair, [units, others], neurons)
    encoded = text(pair)
    before = logits(net, encoded)
    widths = remove_units(net, drop, encoded)
    assert torch.allclose(logits(net, encoded), before, atol=1e-6)
    assert widths["cls_hidden_dim"] == NEURONS - round(drop * NEURONS)
    assert widths.get("encoder_hidden_dim", HIDDEN - round(drop * HIDDEN)) == HIDDEN - round(drop * HIDDEN)


@pytest.mark.parametrize("arch", ["bilstm", "gru", "rnn", "conv"])
@pytest.mark.parametrize("pair", [False, True])
def test_what_is_left_of_a_unit_is_its_row_of_every_gate(arch, pair):
    net = student(arch, pair)
    silence(net, pair, [[1, 4, 5], [0, 2, 3]], [0, 1, 2, 3])
    before = [{name: p.clone() for name, p in layer.named_parameters()} for layer in net.encoder.children()]
    assert remove_units(net, 0.5, text(pair)) == {"encoder_hidden_dim": 3, "cls_hidden_dim": 4}
    gates = {"bilstm": 4, "gru": 3, "rnn": 1, "conv": 2}[arch]
    for layer, old, kept in zip(net.encoder.children(), before, ([0, 2, 3], [1, 4, 5]), strict=False):
        rows = [gate * HIDDEN + unit for gate in range(gates) for unit in kept]
        assert getattr(layer, "hidden_dim", 3) == 3
        for name, parameter in layer.named_parameters():
            expected = old[name][rows]
            assert torch.equal(parameter, expected[:, kept] if name == "weight_hh.value" else expected)
    width = 3 * len(before) * (4 if pair else 1)
    assert [layer.weight.value.shape for layer in (net.classifier[0], net.classifier[3])] == [(4, width), (3, 4)]
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


@pytest.mark.parametrize(("arch", "layout"), [("transformer", {}), ("recursive", {}), *tiny.LAYOUTS])
@pytest.mark.parametrize("pair", [False, True])
def test_of_transformers_feed_forward_units_go(arch, layout, pair):
    net = student(arch, pair, **layout)
    blocks = [block for block in net.encoder.blocks if block.has_units]
    with torch.no_grad():
        for block in blocks:
            block.down.weight.value[:, [0, 2, 5, 7]] = 0
        net.classifier[3].weight.value[:, :4] = 0
    before = logits(net, text(pair))
    assert remove_units(net, 0.5, text(pair)) == {"intermediate_dim": 4, "cls_hidden_dim": 4}
    assert torch.allclose(logits(net, text(pair)), before, atol=1e-6)
    for block in blocks:
        assert block.up.weight.value.shape == (4, HIDDEN)
        assert block.down.weight.value.shape == (HIDDEN, 4)


@pytest.mark.parametrize("arch", ["bilstm", "gru", "rnn", "conv"])
def test_the_units_that_move_the_logits_most_stay(arch):
    # One unit of each layer is read a hundred times as strongly as the others, and one neuron.
    net = student(arch, False, "max")
    units = (2, 4)[: len(biases(net))]
    with torch.no_grad():
        net.classifier[0].weight.value[:, [layer * HIDDEN + unit for layer, unit in enumerate(units)]] *= 100
        net.classifier[3].weight.value[:, 5] *= 100
    loud = [bias[unit].item() for bias, unit in zip(biases(net), units, strict=True)]
    neuron = net.classifier[0].bias[5].item()
    assert remove_units(net, 0.8, text(False))["encoder_hidden_dim"] == 1
    assert [bias[0].item() for bias in biases(net)] == loud
    assert neuron in net.classifier[0].bias.tolist()


@pytest.mark.parametrize("arch", ["bilstm", "gru", "rnn"])
def test_a_unit_that_only_other_units_read_counts(arch):
    net = student(arch, False)
    silence(net, False, [[0], [0]], [])  # to be removed, not the ones that the classifier alone does not read
    with torch.no_grad():
        net.classifier[0].weight.value[:, [2, HIDDEN + 4]] = 0
    mute = [net.encoder.forward_rnn.bias_ih[2].item(), net.encoder.backward_rnn.bias_ih[4].item()]
    remove_units(net, 0.2, text(False))
    for layer, bias in zip(net.encoder.children(), mute, strict=True):
        assert layer.hidden_dim == 5
        assert bias in layer.bias_ih.tolist()


@pytest.mark.parametrize("pair", [False, True])
def test_products_shrink_as_well(pair):
    net = student("bilstm", pair)
    whole = student("bilstm", pair)
    for layer in (*net.encoder.children(), net.classifier[0]):
        for name in ("weight", "weight_ih", "weight_hh"):
            if hasattr(layer, name):
                value = getattr(layer, name).dense().detach()
                setattr(layer, name, Product(Dense(value.clone()), Dense(torch.eye(value.shape[1]))))
    for each in (net, whole):
        remove_units(each, 0.5, text(pair))
    assert torch.allclose(logits(net, text(pair)), logits(whole, text(pair)), atol=1e-6)
    assert net.encoder.forward_rnn.weight_hh.right.value.shape == (HIDDEN, 3)


@pytest.mark.parametrize(("across", "height"), [(1, 2), (2, 1)])
def test_a_sum_of_kronecker_products_is_refused(across, height):
    net = student("bilstm", False)
    rows, columns = net.encoder.forward_rnn.weight_hh.dense().shape
    left, right = torch.ones(rows // height * across, 1), torch.ones(1, height * columns // across)
    net.encoder.forward_rnn.weight_hh = Product(Dense(left), Dense(right), across, height)
    with pytest.raises(UserError, match="units of a sum of Kronecker products cannot be pruned"):
        remove_units(net, 0.5, text(False))


def test_no_layer_loses_all_its_units():
    with pytest.raises(UserError, match="none of 6 units would be left"):
        remove_units(student("rnn", False), 0.95, text(False))


def mute(layer, units):
    """Make some units of a layer of the encoder, or of the comparison of tokens, give zero."""
    first = 2 * HIDDEN if isinstance(layer, Recurrent) else 0  # an LSTM's candidates, a convolution's values
    for parameter in layer.parameters():
        parameter.data[[first + unit for unit in units]] = 0


@pytest.mark.parametrize("arch", ["bilstm", "gru", "conv"])
@pytest.mark.parametrize(("how", "symmetric"), [("align", False), ("align", True), ("compose", True)])
@settings(max_examples=6)
@given(data=st.data())
def test_units_that_give_zero_are_not_missed_where_texts_are_aligned(arch, how, symmetric, data):
    drop = data.draw(st.integers(1, HIDDEN - 1))
    net = student(arch, True, "max", pair_encoder=how, symmetric=symmetric)
    layers, alignment = list(net.encoder.children())[:-1], net.encoder.alignment
    composition = list(alignment.composition.children()) if how == "compose" else []
    for layer in (*layers, *composition):
        mute(layer, data.draw(st.permutations(range(HIDDEN)))[:drop])
    parts = 1 if composition else len(layers)
    mute(alignment.fusion, data.draw(st.permutations(range(HIDDEN * parts)))[: drop * parts])
    net.classifier[3].weight.value.data[:, : round(drop / HIDDEN * NEURONS)] = 0
    before, encoded, left = logits(net, text(True)), text(True), HIDDEN - drop
    assert remove_units(net, drop / HIDDEN, encoded)["encoder_hidden_dim"] == left
    assert torch.allclose(logits(net, encoded), before, atol=1e-6)
    assert alignment.fusion.weight.value.shape == (left * parts, 4 * (left * len(layers) + 5))
    assert net.classifier[0].weight.value.shape[1] == (3 if symmetric else 4) * left * len(layers)


def test_a_unit_that_only_attention_reads_counts():
    net = student("conv", True, "max", pair_encoder="align")
    alignment = net.encoder.alignment
    with torch.no_grad():
        alignment.scale.fill_(1.0)
        columns = [block * (HIDDEN + 5) + unit for block in range(4) for unit in (1, 4)]
        alignment.fusion.weight.value[:, columns] = 0  # of two units, one of which says nothing at all
    mute(net.encoder.convolution, [4])
    loud = net.encoder.convolution.bias[1].item()
    remove_units(net, 1 / HIDDEN, text(True))
    assert loud in net.encoder.convolution.bias.tolist()
    assert net.encoder.convolution.bias[:5].ne(0).all()


@pytest.mark.parametrize(("arch", "task", "epochs"), [("rnn", "qqp", 1), ("ffn", "sst-2", 0), ("conv", "sst-2", 0)])
def test_a_student_with_fewer_units_is_saved_and_loaded(workspace, arch, task, epochs):
    folder = shrunk.shrunk(workspace, "prune", arch, task=task, tune_epochs=epochs, prune_units=0.4)
    parent = folder.with_name(arch)
    assert folder.name.startswith(f"{arch}+pu0.4{'-t' if epochs else ''}")
    net, _, config = load_student(folder, shrunk.CPU)
    encoder = {} if arch == "ffn" else {"encoder_hidden_dim": 3}
    assert config.compression["units"] == {**encoder, "cls_hidden_dim": 4}
    assert {**config.student, **config.compression["units"]} == config.student
    assert len(shrunk.weights_file(folder)) < len(shrunk.weights_file(parent))
    assert config.compression["sparsity"]["total"] < 0.01  # units only: no single weight was pruned
    shrunk.check_saved_again(folder)
    biases = net.classifier[0].bias.tolist()
    assert set(biases).issubset(shrunk.loaded(parent).classifier[0].bias.tolist()) == (epochs == 0)
