"""Building an ONNX graph node by node: onnx.helper, with names for values and a student's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.installed import install
from compression.students.student import Student

if TYPE_CHECKING:
    import onnx

OPSET = 17
IR_VERSION = 8
"""Versions that a reader must support; both are from 2022, for older runtimes."""
FLOAT = 1
"""ONNX's number for the type float32, for Cast."""


def import_onnx() -> Any:
    """Import and return the onnx library. Raises UserError when it is not installed."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise UserError(f"ONNX files need a library; run: {install('onnx')}") from None
    return onnx


class Graph:
    """Nodes and constants in the order in which they are added. Values are referred to by name."""

    def __init__(self, student: Student) -> None:
        """student: the model whose weights the graph takes. Raises UserError when the onnx library is not installed."""
        self._onnx, self.student = import_onnx(), student
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: list[int | str]) -> str:
        """Add an int64 input; a dimension given by name may have any size, the same wherever the name is used."""
        kind = self._onnx.TensorProto.INT64
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add an array under a name; the same name again is the same array."""
        if name not in self._constants:
            self._constants[name] = self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, *values: int) -> str:
        """Add a constant int64 [n], such as axes."""
        return self.constant(f"integers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a scalar constant: int64 for an int, else float32."""
        kind = np.int64 if isinstance(value, int) else np.float32
        return self.constant(f"{kind.__name__}_{value}", np.array(value, kind))

    def matrix(self, name: str) -> str:
        """Add one of the student's matrices, float32."""
        return self.constant(name, self.student.get_submodule(name).dense().numpy())

    def vector(self, name: str) -> str:
        """Add one of the student's biases or norms."""
        return self.constant(name, self.student.vector(name).numpy())

    def linear(self, name: str, x: str) -> str:
        """Apply one of the student's linear layers to x [..., inputs]."""
        weight = self.student.get_submodule(f"{name}.weight").dense().numpy()
        product = self.node("MatMul", x, self.constant(f"{name}.weight", weight.T))
        return self.node("Add", product, self.vector(f"{name}.bias"))

    def squeeze(self, x: str, *axes: int) -> str:
        """Remove axes of length one."""
        return self.node("Squeeze", x, self.integers(*axes))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Add axes of length one."""
        return self.node("Unsqueeze", x, self.integers(*axes))

    def length(self, x: str, axis: int) -> str:
        """Return the length of an axis, an int64 scalar."""
        return self.squeeze(self.node("Shape", x, start=axis, end=axis + 1), 0)

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Apply an operator. Returns the name of its first output."""
        stem = f"{operator}_{len(self._nodes)}"
        names = [stem if i == 0 else f"{stem}_{i}" for i in range(outputs)]
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, names, name=stem, **attributes))
        return names[0]

    def finish(self, name: str, logits: str, width: int, metadata: dict[str, str]) -> onnx.ModelProto:
        """Return the model with one float32 output, logits [batch, width], checked by onnx's own checker."""
        helper = self._onnx.helper
        self._nodes.append(helper.make_node("Identity", [logits], ["logits"], name="logits"))
        result = helper.make_tensor_value_info("logits", self._onnx.TensorProto.FLOAT, ["batch", width])
        graph = helper.make_graph(self._nodes, name, self._inputs, [result], list(self._constants.values()))
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="featherweight")
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        return model
