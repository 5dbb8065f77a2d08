"""A student as an ONNX file: token ids and lengths to logits, with any number of texts of any length in a batch.

The tokenizer stays outside: ids are what compression.tokenizers' tokenizers give (`encode`, then `pad`). With
onnxruntime, of a single sentence's student:

    text = load_tokenizer(settings, folder).encode(["a gorgeous , witty film"])
    ids, lengths = text.pad(np.arange(len(text)))
    logits, = onnxruntime.InferenceSession("NAME.onnx").run(None, {"ids": ids, "lengths": lengths})

Inputs: ids int64 [batch, time, width] (width 3 for hash embeddings, else 1; ids past a text's length are not
read, but must be valid) and lengths int64 [batch], at least 1; of pairs ids2 and lengths2 too. Output: logits
float32 [batch, outputs], of a regression the score scaled to [0, 1]. Labels and settings are in the file's metadata.
Weights are float32 whatever the student stores, and nothing rounds inputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from common.errors import UserError
from common.store.files import whole_file
from common.training.models import ModelConfig, read_config
from compression.export.onnx_graph import Graph
from compression.export.onnx_transformer import TransformerNodes
from compression.runtime import HASHES
from compression.students.saved import load_student

if TYPE_CHECKING:
    from compression.students.layers import Recurrent
    from compression.students.student import Student

GATES = {"lstm": (0, 3, 1, 2), "rnn": (0,)}
"""PyTorch's indices of ONNX's gates: input, output, forget, candidate."""
FLOAT = 1
"""ONNX's number of float32, for Cast."""


def export_onnx(folder: Path, target: Path) -> Path:
    """Write the student in `folder` as the ONNX file `target`, whole or not at all. The same bytes every time.

    Raises UserError when the folder holds no student, or the onnx library is not installed.
    """
    if read_config(folder).kind != "student":
        raise UserError(f"{folder}: only students are exported")
    student, _, config = load_student(folder, torch.device("cpu"))
    with torch.no_grad():
        model = Exporter(student, config).model()
    with whole_file(target) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))
    return target


class Exporter:
    """Writes one student's forward pass, part by part as compression.students has them."""

    def __init__(self, student: Student, config: ModelConfig) -> None:
        self.student, self.config, self.graph = student, config, Graph(student)

    def model(self):  # noqa: ANN201 - onnx's ModelProto
        """The whole student."""
        graph, config = self.graph, self.config
        suffixes = ("", "2") if config.pair else ("",)
        encoded = [self._together(suffixes)] if self.student.reads_together else [self._encode(s) for s in suffixes]
        joined = encoded[0]
        if len(encoded) > 1:
            difference, product = graph.node("Abs", graph.node("Sub", *encoded)), graph.node("Mul", *encoded)
            joined = graph.node("Concat", *encoded, difference, product, axis=1)
        hidden = graph.node("Relu", graph.linear("classifier.0", joined))
        logits = graph.linear("classifier.3", hidden)
        return graph.finish(config.name, "logits", logits, config.outputs, metadata(config))

    def _inputs(self, suffix: str) -> tuple[str, str]:
        """Ids and lengths of a sentence."""
        width = HASHES if self.config.student["embedding_type"] == "hash" else 1
        ids = self.graph.input(f"ids{suffix}", ["batch", f"time{suffix}", width])
        return ids, self.graph.input(f"lengths{suffix}", ["batch"])

    def _together(self, suffixes: Sequence[str]) -> str:
        """All sentences as one text, [batch, width of the encoder's output]."""
        inputs = [self._inputs(suffix) for suffix in suffixes]
        batch = self.graph.node("Shape", inputs[0][1])
        vectors = [(self._embed(ids), lengths) for ids, lengths in inputs]
        return TransformerNodes(self.graph, self.student.encoder).encode(vectors, batch)

    def _encode(self, suffix: str) -> str:
        """One sentence, [batch, width of the encoder's output]."""
        graph = self.graph
        ids, lengths = self._inputs(suffix)
        # Recurrent operators want time first.
        vectors = self._embed(graph.node("Transpose", ids, perm=[1, 0, 2]))
        length = graph.node("Squeeze", graph.node("Shape", ids, start=1, end=2), graph.integers(0))
        steps = graph.node("Range", graph.number(0), length, graph.number(1))
        steps = graph.node("Unsqueeze", steps, graph.integers(1, 2))  # [time, 1, 1]
        ends = graph.node("Unsqueeze", lengths, graph.integers(0, 2))  # [1, batch, 1]
        if self.config.arch in ("ffn", "conv"):
            vectors = self._where(graph.node("Less", steps, ends), vectors, 0.0)
        if self.config.arch == "ffn":
            return self._mean(vectors, lengths)
        if self.config.arch == "conv":
            return self._pool(self._convolution(vectors), steps, ends)
        backward = graph.node("ReverseSequence", vectors, lengths, time_axis=0, batch_axis=1)
        states = [self._recurrent("forward_rnn", vectors), self._recurrent("backward_rnn", backward)]
        return graph.node("Concat", *(self._pool(each, steps, ends) for each in states), axis=1)

    def _embed(self, ids: str) -> str:
        """ids: [a, b, width] -> [a, b, dim], whichever of time and batch comes first."""
        graph = self.graph
        table = self.graph.matrix("embedding.table.weight")
        if self.config.student["embedding_type"] != "hash":
            return graph.node("Gather", table, graph.node("Squeeze", ids, graph.integers(2)))
        size = self.config.student["vocab_size"]
        rows = graph.number(size)
        sector = graph.constant("sector", np.arange(HASHES) * size)
        importance = graph.node("Add", graph.node("Mod", ids, rows), sector)
        weights = graph.node("Gather", self.graph.matrix("embedding.importance.weight"), importance)
        vectors = graph.node("Gather", table, graph.node("Div", ids, rows))
        weighted = graph.node("Mul", weights, vectors)
        return graph.node("ReduceSum", weighted, graph.integers(2), keepdims=0)

    def _mean(self, vectors: str, lengths: str) -> str:
        """vectors: [time, batch, dim], zero past each text's end -> [batch, dim]."""
        graph = self.graph
        total = graph.node("ReduceSum", vectors, graph.integers(0), keepdims=0)
        count = graph.node("Unsqueeze", graph.node("Cast", lengths, to=FLOAT), graph.integers(1))
        return graph.node("Div", total, count)

    def _pool(self, states: str, steps: str, ends: str) -> str:
        """states: [time, batch, hidden] -> [batch, hidden], by masks: padding may hold anything."""
        graph = self.graph
        if self.config.student["pooling"] == "max":
            masked = self._where(graph.node("Less", steps, ends), states, -np.inf)
            return graph.node("ReduceMax", masked, axes=[0], keepdims=0)
        last = graph.node("Equal", steps, graph.node("Sub", ends, graph.integers(1)))
        return graph.node("ReduceSum", self._where(last, states, 0.0), graph.integers(0), keepdims=0)

    def _where(self, mask: str, values: str, otherwise: float) -> str:
        return self.graph.node("Where", mask, values, self.graph.number(otherwise))

    def _convolution(self, vectors: str) -> str:
        """vectors: [time, batch, dim], zero past each text's end -> states [time, batch, hidden]."""
        graph, encoder, name = self.graph, self.student.encoder, "encoder.convolution"
        weight, width = encoder.convolution.weight.dense().numpy(), encoder.kernel_width
        # ONNX has a kernel's inputs before its offsets.
        kernels = graph.constant(f"{name}.weight", weight.reshape(len(weight), width, -1).transpose(0, 2, 1))
        texts = graph.node("Transpose", vectors, perm=[1, 2, 0])
        both = graph.node("Conv", texts, kernels, graph.vector(f"{name}.bias"), pads=[width // 2, width // 2])
        values = graph.node("Split", both, axis=1, outputs=2)
        states = graph.node("Mul", values, graph.node("Sigmoid", f"{values}_1"))
        return graph.node("Transpose", states, perm=[2, 0, 1])

    def _recurrent(self, direction: str, vectors: str) -> str:
        """vectors: [time, batch, dim] -> states [time, batch, hidden]."""
        graph, name = self.graph, f"encoder.{direction}"
        layer: Recurrent = self.student.get_submodule(name)
        weights = [in_onnx_order(layer.kind, matrix.dense()) for matrix in (layer.weight_ih, layer.weight_hh)]
        biases = [in_onnx_order(layer.kind, bias) for bias in (layer.bias_ih, layer.bias_hh)]
        # An axis for directions stands first; both biases are one tensor.
        arrays = {"weight_ih": weights[0][None], "weight_hh": weights[1][None], "bias": np.concatenate(biases)[None]}
        constants = [graph.constant(f"{name}.{key}", array) for key, array in arrays.items()]
        states = graph.node(layer.kind.upper(), vectors, *constants, hidden_size=layer.hidden_dim)
        return graph.node("Squeeze", states, graph.integers(1))


def in_onnx_order(kind: str, tensor: torch.Tensor) -> np.ndarray:
    """Rows of a recurrent weight or bias, [gates * hidden, ...], with the gates in ONNX's order."""
    blocks = tensor.chunk(len(GATES[kind]))
    return torch.cat([blocks[gate] for gate in GATES[kind]]).numpy()


def metadata(config: ModelConfig) -> dict[str, str]:
    """Return the file's metadata; everything but plain words is JSON."""
    encoded = {"labels": config.labels, "pair": config.pair, "student": config.student}
    plain = {"name": config.name, "task": config.task, "arch": config.arch}
    return plain | {key: json.dumps(value) for key, value in encoded.items()}
