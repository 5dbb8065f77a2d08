"""Matrices as students hold them: dense, in 16 bits, in codes, or as a product. Each says what it is worth in float32.

A layer (compression.students.layers) multiplies with whatever matrix it was given, so quantization, factorisation and
learned pruning replace matrices and leave layers alone. The names a matrix gives its tensors say what it is, and a
saved student is rebuilt from them:

    value                       float32, trained; or float16
    codes, scale, zero_point    value = (codes - zero_point) * scale, scales for each row, each column or all
    codes, codebook             value[r, c] = codebook[r or 0, codes[r, c]]
    left.*, right.*             value = left @ right
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from common.errors import UserError


class Matrix(nn.Module):
    """Base of all: a [rows, columns] matrix."""

    def dense(self) -> torch.Tensor:
        """The whole matrix, float32 [rows, columns]."""
        raise NotImplementedError

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows by number. ids: int64 [...] -> float32 [..., columns]."""
        # index_select's gradient is faster than that of embedding and of indexing, for narrow matrices many times.
        return self.dense().index_select(0, ids.reshape(-1)).view(*ids.shape, -1)


class Dense(Matrix):
    """Float32 weights, trained as they are."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value)

    def dense(self) -> torch.Tensor:
        """The parameter itself."""
        return self.value


class Half(Matrix):
    """Float16 weights. Hash importance: a code and a scale for each single number would be larger (section 6.1.7)."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value.detach().half())

    def dense(self) -> torch.Tensor:
        """Float32."""
        return self.value.float()


class Affine(Matrix):
    """Codes with scales and zero points: x = (code - zero_point) * scale (equation 4.12).

    codes: uint8 [rows, columns]; scale: float32 and zero_point: uint8, [rows, 1], [1, columns] or [1, 1].
    """

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("zero_point", zero_point)

    def dense(self) -> torch.Tensor:
        """Codes made numbers."""
        return (self.codes.float() - self.zero_point.float()) * self.scale


class Codebook(Matrix):
    """Codes of centroids (Han, Mao and Dally, 2016).

    codes: uint8 [rows, columns]; codebook: float32 [1, levels] for the matrix or [rows, levels] for each row.
    """

    def __init__(self, codes: torch.Tensor, codebook: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("codebook", codebook)

    def dense(self) -> torch.Tensor:
        """Each code's centroid."""
        codes = self.codes.long()
        return self.codebook[0][codes] if len(self.codebook) == 1 else self.codebook.gather(1, codes)


class Product(Matrix):
    """A matrix of low rank, [rows, rank] times [rank, columns]."""

    def __init__(self, left: Matrix, right: Matrix) -> None:
        super().__init__()
        self.left, self.right = left, right

    def dense(self) -> torch.Tensor:
        """The product."""
        return self.left.dense() @ self.right.dense()

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Only the rows asked for are multiplied."""
        return self.left.select(ids) @ self.right.dense()


def matrices(module: nn.Module) -> Iterator[tuple[str, Matrix]]:
    """Name and matrix of everything in a module that is stored by itself: of products, their two factors."""
    for name, inner in module.named_modules():
        if isinstance(inner, Matrix) and not isinstance(inner, Product):
            yield name, inner


def replace_matrix(module: nn.Module, name: str, matrix: Matrix) -> None:
    """Put another matrix in the place of the one of this name."""
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, matrix)


def matrix_like(tensors: Mapping[str, torch.Tensor], name: str) -> Matrix:
    """The matrix that a weights file holds under a name. Raises UserError when it holds none, or a malformed one."""
    if f"{name}.left.value" in tensors or f"{name}.left.codes" in tensors:
        return Product(matrix_like(tensors, f"{name}.left"), matrix_like(tensors, f"{name}.right"))
    own = {key: tensors[f"{name}.{key}"] for key in _TYPES if f"{name}.{key}" in tensors}
    for key, tensor in own.items():
        if tensor.dim() != 2 or tensor.dtype not in _TYPES[key]:
            raise UserError(f"{name}.{key}: {tensor.dtype} {list(tensor.shape)} cannot be part of a matrix")
    kinds = {("value",): _valued, ("codes", "scale", "zero_point"): Affine, ("codes", "codebook"): Codebook}
    if tuple(own) not in kinds:
        raise UserError(f"{name}: no matrix is stored as {', '.join(own) or 'nothing'}")
    return kinds[tuple(own)](*own.values())


_TYPES = {
    "value": (torch.float32, torch.float16),
    "codes": (torch.uint8,),
    "scale": (torch.float32,),
    "zero_point": (torch.uint8,),
    "codebook": (torch.float32,),
}


def _valued(value: torch.Tensor) -> Matrix:
    return Half(value) if value.dtype == torch.float16 else Dense(value)


def restore_matrices(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give a fresh student matrices of the forms that a weights file holds.

    Raises UserError for a malformed one; shapes are checked when the weights are loaded.
    """
    for name, matrix in list(matrices(module)):
        stored = matrix_like(tensors, name)
        shape = list(stored.dense().shape)
        if shape != list(matrix.dense().shape):
            raise UserError(f"{name}: the file holds {shape}, config.json asks for {list(matrix.dense().shape)}")
        replace_matrix(module, name, stored)
