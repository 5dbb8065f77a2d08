"""A student as an ONNX file: maps token ids and lengths to logits, for batches of any size with texts of any length.

The tokenizer is not in the file: the tokenizers of compression.tokenizers give the ids (`encode`, then `pad`). With
onnxruntime, for a student of single sentences:

    text = load_tokenizer(settings, folder).encode(["a gorgeous , witty film"])
    ids, lengths = text.pad(np.arange(len(text)))
    logits, = onnxruntime.InferenceSession("NAME.onnx").run(None, {"ids": ids, "lengths": lengths})

Inputs: ids int64 [batch, time, width] (width 3 for hash embeddings, else 1; ids past a text's length are not used, but
must be valid) and lengths int64 [batch], at least 1; for pairs, also ids2 and lengths2. Output: logits float32 [batch,
outputs], or for a regression, the score scaled to [0, 1]. Labels and settings are in the file's metadata.
Weights are float32, whatever the student stores, and inputs are not rounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from common.errors import UserError
from common.store.files import whole_file
from common.training.models import ModelConfig, read_config
from compression.export.onnx_graph import FLOAT, Graph
from compression.export.onnx_transformer import TransformerNodes
from compression.runtime import HASHES
from compression.runtime.shapes import GATES
from compression.students.layers import RECURRENT, Recurrent
from compression.students.saved import load_student
from compression.students.student import Student

ORDER = ("input", "output", "forget", "update", "reset", "candidate")
"""Order of gates in ONNX, of an LSTM and of a GRU."""


def export_onnx(folder: Path, target: Path) -> Path:
    """Write the student in `folder` as the ONNX file `target`, atomically and always with the same bytes.

    Raises UserError if the folder holds no student, or if the onnx library is not installed.
    """
    if read_config(folder).kind != "student":
        raise UserError(f"{folder}: only students are exported")
    student, _, config = load_student(folder, torch.device("cpu"))
    with torch.no_grad():
        model = Exporter(student, config).model()
    with whole_file(target) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))
    return target


class Exporter(Graph):
    """Writes a student's forward pass into a graph, part by part, as in compression.students."""

    def __init__(self, student: Student, config: ModelConfig) -> None:
        super().__init__(student)
        self.config, self.settings = config, config.student

    def model(self):  # noqa: ANN201 - onnx's ModelProto
        """Return the model of the whole student."""
        config = self.config
        suffixes = ("", "2") if config.pair else ("",)
        if self.student.aligns:
            joined = self._compare(*self._aligned())
        elif self.student.reads_together:
            inputs = [self._add_inputs(suffix) for suffix in suffixes]
            batch = self.node("Shape", inputs[0][1])
            vectors = [(self._embed(ids), lengths) for ids, lengths in inputs]
            joined = TransformerNodes(self, self.student.encoder).encode(vectors, batch)
        else:
            encoded = [self._encode(suffix) for suffix in suffixes]
            joined = self._compare(*encoded) if config.pair else encoded[0]
        hidden = self.node("Relu", self.linear("classifier.0", joined))
        logits = self.linear("classifier.3", hidden)
        return self.finish(config.name, logits, config.outputs, metadata(config))

    def _compare(self, *encoded: str) -> str:
        """Return the comparison of two vectors [batch, width], as in `compare`."""
        both = [self.node("Add", *encoded)] if self.student.symmetric else encoded
        difference, product = self.node("Abs", self.node("Sub", *encoded)), self.node("Mul", *encoded)
        return self.node("Concat", *both, difference, product, axis=1)

    def _add_inputs(self, suffix: str) -> tuple[str, str]:
        """Add the inputs of a sentence. Returns its ids and lengths."""
        width = HASHES if self.settings["embedding_type"] == "hash" else 1
        ids = self.input(f"ids{suffix}", ["batch", f"time{suffix}", width])
        return ids, self.input(f"lengths{suffix}", ["batch"])

    def _encode(self, suffix: str) -> str:
        """Return the encoding of one sentence, [batch, width of the encoder's output]."""
        ids, lengths = self._add_inputs(suffix)
        # Recurrent operators expect time first.
        vectors = self._embed(self.node("Transpose", ids, perm=[1, 0, 2]))
        longest = self.length(ids, 1)
        steps = self.unsqueeze(self.node("Range", self.number(0), longest, self.number(1)), 1, 2)  # [time, 1, 1]
        ends = self.unsqueeze(lengths, 0, 2)  # [1, batch, 1]
        if self.config.arch == "ffn":
            return self._bag(vectors, self.node("Less", steps, ends), lengths)
        if self.config.arch == "conv":
            vectors = self._where(self.node("Less", steps, ends), vectors, 0.0)
            return self._pool(self._convolution(vectors, "encoder"), steps, ends)
        backward = self.node("ReverseSequence", vectors, lengths, time_axis=0, batch_axis=1)
        states = self._recurrent("encoder.forward_rnn", vectors), self._recurrent("encoder.backward_rnn", backward)
        return self.node("Concat", *(self._pool(direction, steps, ends) for direction in states), axis=1)

    def _bag(self, vectors: str, inside: str, lengths: str) -> str:
        """vectors: [time, batch, dim] -> [batch, width]. inside: bool [time, batch, 1]; lengths: [batch]."""
        pooling, parts = self.student.encoder.pooling, []
        if pooling != "max":
            total = self.node("ReduceSum", self._where(inside, vectors, 0.0), self.integers(0), keepdims=0)
            count = self.node("Cast", lengths, to=FLOAT)
            count = self.node("Sqrt", count) if pooling == "both" else count
            parts.append(self.node("Div", total, self.unsqueeze(count, 1)))
        if pooling != "mean":
            parts.append(self.node("ReduceMax", self._where(inside, vectors, -np.inf), axes=[0], keepdims=0))
        return self.node("Concat", *parts, axis=1) if pooling == "both" else parts[0]

    def _aligned(self) -> list[str]:
        """Return a vector for each text of a pair, [batch, width of a state], as compression.students.pairs does."""
        inputs = [self._add_inputs(suffix) for suffix in ("", "2")]
        masks, tokens = [self._mask(*text) for text in inputs], []
        for (ids, lengths), shared in zip(inputs, self._shared([ids for ids, _ in inputs], masks), strict=True):
            vectors = self._embed(self.node("Transpose", ids, perm=[1, 0, 2]))
            shared = self.unsqueeze(self.node("Transpose", shared, perm=[1, 0]), 2)
            states = self._states(self.node("Concat", vectors, shared, axis=2), lengths)
            whole = self.node("Concat", states, vectors, axis=2)
            tokens.append(self.node("Transpose", whole, perm=[1, 0, 2]))
        results = self._compared(tokens, masks)
        if self.student.encoder.alignment.composition is not None:
            compared, results = results, []
            for text, (_, lengths) in zip(compared, inputs, strict=True):
                vectors = self.node("Transpose", text, perm=[1, 0, 2])
                states = self._states(vectors, lengths, "encoder.alignment.composition")
                results.append(self.node("Transpose", states, perm=[1, 0, 2]))
        texts = zip(masks, results, strict=True)
        masked = [self._where(self.unsqueeze(mask, 2), text, -np.inf) for mask, text in texts]
        return [self.node("ReduceMax", text, axes=[1], keepdims=0) for text in masked]

    def _mask(self, ids: str, lengths: str) -> str:
        """Return the mask of a text, true at tokens, bool [batch, time]. ids: [batch, time, width]."""
        steps = self.node("Range", self.number(0), self.length(ids, 1), self.number(1))
        return self.node("Less", steps, self.unsqueeze(lengths, 1))

    def _shared(self, ids: Sequence[str], masks: Sequence[str]) -> list[str]:
        """Return for each text, float32 [batch, time], 1 where the other text has the token, else 0."""
        equal = self.node("Equal", self.unsqueeze(ids[0], 2), self.unsqueeze(ids[1], 1))
        same = self.node("ReduceMin", self.node("Cast", equal, to=FLOAT), axes=[3], keepdims=0)
        tokens = self.node("And", self.unsqueeze(masks[0], 2), self.unsqueeze(masks[1], 1))
        same = self._where(tokens, same, 0.0)
        return [self.node("ReduceMax", same, axes=[axis], keepdims=0) for axis in (2, 1)]

    def _compared(self, tokens: Sequence[str], masks: Sequence[str]) -> list[str]:
        """Return the result of the comparison for each text, [batch, time, width]. tokens: [batch, time, numbers]."""
        first, second = tokens
        dots = self.node("MatMul", first, self.node("Transpose", second, perm=[0, 2, 1]))
        scores = self.node("Mul", dots, self.vector("encoder.alignment.scale"))
        back = self.node("Transpose", scores, perm=[0, 2, 1])
        compared = []
        for a, b, mask_of_b, dots in ((first, second, masks[1], scores), (second, first, masks[0], back)):
            masked = self._where(self.unsqueeze(mask_of_b, 1), dots, -np.inf)
            read = self.node("MatMul", self.node("Softmax", masked, axis=-1), b)
            difference, product = self.node("Sub", a, read), self.node("Mul", a, read)
            joined = self.node("Concat", a, read, difference, product, axis=2)
            compared.append(self.node("Relu", self.linear("encoder.alignment.fusion", joined)))
        return compared

    def _states(self, vectors: str, lengths: str, name: str = "encoder") -> str:
        """vectors: [time, batch, numbers] -> a state at each token, [time, batch, width]. name: of the layers."""
        if self.config.arch == "conv":
            steps = self.node("Range", self.number(0), self.length(vectors, 0), self.number(1))
            inside = self.node("Less", self.unsqueeze(steps, 1, 2), self.unsqueeze(lengths, 0, 2))
            return self._convolution(self._where(inside, vectors, 0.0), name)

        def turned(sequence: str) -> str:
            return self.node("ReverseSequence", sequence, lengths, time_axis=0, batch_axis=1)

        backward = turned(self._recurrent(f"{name}.backward_rnn", turned(vectors)))
        return self.node("Concat", self._recurrent(f"{name}.forward_rnn", vectors), backward, axis=2)

    def _embed(self, ids: str) -> str:
        """ids: [a, b, width] -> [a, b, dim], whichever of time and batch comes first."""
        table = self.matrix("embedding.table.weight")
        if self.settings["embedding_type"] != "hash":
            return self.node("Gather", table, self.squeeze(ids, 2))
        size = self.settings["vocab_size"]
        rows = self.number(size)
        sector = self.constant("sector", np.arange(HASHES) * size)
        importance = self.node("Add", self.node("Mod", ids, rows), sector)
        weights = self.node("Gather", self.matrix("embedding.importance.weight"), importance)
        vectors = self.node("Gather", table, self.node("Div", ids, rows))
        weighted = self.node("Mul", weights, vectors)
        return self.node("ReduceSum", weighted, self.integers(2), keepdims=0)

    def _pool(self, states: str, steps: str, ends: str) -> str:
        """states: [time, batch, hidden] -> [batch, hidden], by masks: padding may hold anything."""
        if self.settings["pooling"] == "max":
            masked = self._where(self.node("Less", steps, ends), states, -np.inf)
            return self.node("ReduceMax", masked, axes=[0], keepdims=0)
        last = self.node("Equal", steps, self.node("Sub", ends, self.integers(1)))
        return self.node("ReduceSum", self._where(last, states, 0.0), self.integers(0), keepdims=0)

    def _where(self, mask: str, values: str, otherwise: float) -> str:
        return self.node("Where", mask, values, self.number(otherwise))

    def _convolution(self, vectors: str, encoder: str) -> str:
        """vectors: [time, batch, dim], zero past each text's end -> states [time, batch, hidden]. encoder: its name."""
        name, module = f"{encoder}.convolution", self.student.get_submodule(encoder)
        weight, width = module.convolution.weight.dense().numpy(), module.kernel_width
        # In ONNX, a kernel's inputs come before its offsets.
        kernels = self.constant(f"{name}.weight", weight.reshape(len(weight), width, -1).transpose(0, 2, 1))
        texts = self.node("Transpose", vectors, perm=[1, 2, 0])
        both = self.node("Conv", texts, kernels, self.vector(f"{name}.bias"), pads=[width // 2, width // 2])
        values = self.node("Split", both, axis=1, outputs=2)
        states = self.node("Mul", values, self.node("Sigmoid", f"{values}_1"))
        return self.node("Transpose", states, perm=[2, 0, 1])

    def _recurrent(self, name: str, vectors: str) -> str:
        """vectors: [time, batch, dim] -> states [time, batch, hidden]. name: of a layer."""
        layer: Recurrent = self.student.get_submodule(name)
        weights = [in_onnx_order(layer.arch, matrix.dense()) for matrix in (layer.weight_ih, layer.weight_hh)]
        bias = in_onnx_order(layer.arch, layer.bias)
        # The first axis is for directions; both biases are one tensor, and the second is zero.
        biases = np.concatenate([bias, np.zeros_like(bias)])
        arrays = {"weight_ih": weights[0][None], "weight_hh": weights[1][None], "bias": biases[None]}
        constants = [self.constant(f"{name}.{key}", array) for key, array in arrays.items()]
        options = {"linear_before_reset": 1} if layer.arch == "gru" else {}
        operator = RECURRENT[layer.arch].__name__  # PyTorch's names are ONNX's
        states = self.node(operator, vectors, *constants, hidden_size=layer.hidden_dim, **options)
        return self.squeeze(states, 1)


def in_onnx_order(arch: str, tensor: torch.Tensor) -> np.ndarray:
    """Return a recurrent weight or bias, [gates * hidden, ...], with the gates in ONNX's order."""
    blocks = dict(zip(GATES[arch], tensor.chunk(len(GATES[arch])), strict=True))
    return torch.cat([blocks[gate] for gate in sorted(blocks, key=ORDER.index)]).numpy()


def metadata(config: ModelConfig) -> dict[str, str]:
    """Return the file's metadata; everything but plain words is JSON."""
    encoded = {
        "labels": config.labels,
        "pair": config.pair,
        "kind": config.task_kind.name,
        "student": config.student,
    }
    plain = {"name": config.name, "task": config.task, "arch": config.arch}
    return plain | {key: json.dumps(value) for key, value in encoded.items()}
