"""The forms of a student's weight matrices: dense, in 16 bits, in codes, or as a product of two.

A layer (compression.students.layers) multiplies with a matrix of any form, so quantization, factorisation and learned
pruning replace matrices and leave layers alone. A form knows the names of its tensors in a weights file, how it is
restored from them, and how it is written into a packed file:

    Dense      value                      float32, trained
    Half       value                      float16
    Affine     codes, scale, zero_point   (codes - zero_point) * scale, scales for each row, each column or all
    Codebook   codes, codebook            value[r, c] = codebook[r or 0, codes[r, c]]
    Product    left.*, right.*, blocks    left @ right; with blocks, one row per block of the matrix
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from common.errors import UserError
from compression.runtime import AFFINE, CODEBOOK, FLOAT16, FLOAT32, KRONECKER, PER_COLUMN, PER_ROW, PRODUCT, RESIDUAL


class Matrix(nn.Module):
    """Base of all forms: a [rows, columns] matrix."""

    TENSORS: ClassVar[dict[str, torch.dtype]] = {}
    """Name and type of each tensor in a weights file, in the order of the constructor's arguments."""
    element_size: ClassVar[int] = 4
    """Bytes of a weight in a weights file, scales and codebooks left out."""

    def dense(self) -> torch.Tensor:
        """Return the whole matrix, float32 [rows, columns]."""
        raise NotImplementedError

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows by index. ids: int64 [...] -> float32 [..., columns]."""
        # index_select's gradient is faster than embedding's and indexing's, for narrow matrices many times faster.
        return self.dense().index_select(0, ids.reshape(-1)).view(*ids.shape, -1)

    def take_rows(self, rows: torch.Tensor) -> Matrix:
        """Return a copy with these rows only. rows: int64 [rows of the copy]."""
        tensors = (getattr(self, name).detach() for name in self.TENSORS)
        return type(self)(*(tensor[rows] if len(tensor) > 1 else tensor for tensor in tensors))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> Matrix:
        """Return the matrix with this state_dict. Raises UserError if no form has such tensors.

        The factors of a product must not be products themselves.
        """
        if any(name.startswith("left.") for name in tensors) and not any(".left." in name for name in tensors):
            left, right = (cls.from_tensors(_below(tensors, factor)) for factor in ("left", "right"))
            across, height = tensors["blocks"].tolist() if "blocks" in tensors else (1, 1)
            if min(across, height) < 1 or len(left.dense()) % across or right.dense().shape[1] % height:
                raise UserError(f"its factors cannot be cut into blocks, {across} across and {height} high")
            return Product(left, right, across, height)
        types = {name: tensor.dtype for name, tensor in tensors.items() if tensor.dim() == 2}
        for form in (Dense, Half, Affine, Codebook):
            if types == form.TENSORS and len(types) == len(tensors):
                return form(*(tensors[name] for name in form.TENSORS))
        held = ", ".join(f"{name} ({t.dtype}, {list(t.shape)})".replace("torch.", "") for name, t in tensors.items())
        raise UserError(f"no matrix is stored as {held or 'nothing'}")

    def to_stream(self, out: Any) -> None:
        """Write the matrix into a packed file, as compression.runtime reads it. out: MatrixStreams of the packer."""
        raise NotImplementedError


class Dense(Matrix):
    """Float32 weights, trained as they are."""

    TENSORS = {"value": torch.float32}

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value)

    def dense(self) -> torch.Tensor:
        return self.value

    def to_stream(self, out: Any) -> None:
        out.byte(FLOAT32)
        out.planes(self.value)


class Fixed(Matrix):
    """Base of the forms that are not trained."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        """tensors: those of TENSORS."""
        super().__init__()
        for (name, dtype), tensor in zip(self.TENSORS.items(), tensors, strict=True):
            self.register_buffer(name, tensor.detach().to(dtype))


class Half(Fixed):
    """Float16 weights. Hash importance: a code and a scale for each single number would be larger (section 6.1.7)."""

    TENSORS = {"value": torch.float16}
    element_size = 2

    def dense(self) -> torch.Tensor:
        return self.value.float()

    def to_stream(self, out: Any) -> None:
        out.byte(FLOAT16)
        out.planes(self.value)


class Affine(Fixed):
    """Codes with scales and zero points: x = (code - zero_point) * scale (equation 4.12).

    codes: uint8 [rows, columns]; scale: float32 and zero_point: uint8, [rows, 1], [1, columns] or [1, 1].
    """

    TENSORS = {"codes": torch.uint8, "scale": torch.float32, "zero_point": torch.uint8}
    element_size = 1

    def dense(self) -> torch.Tensor:
        return (self.codes.float() - self.zero_point.float()) * self.scale

    def to_stream(self, out: Any) -> None:
        """Write codes, or if smaller when coded, their differences from the zero points."""
        residual = self.codes - self.zero_point
        smaller = out.cost(residual) < out.cost(self.codes)
        by_row, by_column = (length > 1 for length in self.scale.shape)
        out.byte(AFFINE)
        out.byte(RESIDUAL * smaller | PER_ROW * by_row | PER_COLUMN * by_column)
        out.zero_points(self.zero_point)
        out.codes(residual if smaller else self.codes)
        out.floats("scale", self.scale)


class Codebook(Fixed):
    """Codes of centroids (Han, Mao and Dally, 2016).

    codes: uint8 [rows, columns]; codebook: float32 [1, levels] for the matrix or [rows, levels] for each row.
    """

    TENSORS = {"codes": torch.uint8, "codebook": torch.float32}
    element_size = 1

    def dense(self) -> torch.Tensor:
        codes = self.codes.long()
        return self.codebook[0][codes] if len(self.codebook) == 1 else self.codebook.gather(1, codes)

    def to_stream(self, out: Any) -> None:
        book = self.codebook[:, : int(self.codes.max()) + 1]
        out.byte(CODEBOOK)
        out.byte(PER_ROW * (len(book) > 1))
        out.byte(book.shape[1] - 1)
        out.codes(self.codes)
        out.floats("codebook", book)


class Product(Matrix):
    """A matrix of low rank, or a sum of Kronecker products (Van Loan and Pitsianis, 1993).

    The matrix is cut into blocks of `height` rows, `across` of them side by side. A row of left @ right is a block,
    flattened row by row; blocks are numbered from left to right, then downwards. So left is [blocks, rank] and right
    [rank, size of a block]. Blocks of one whole row, the default, give a matrix of low rank: [rows, rank] times [rank,
    columns].
    """

    def __init__(self, left: Matrix, right: Matrix, across: int = 1, height: int = 1) -> None:
        """left: [blocks, rank]; right: [rank, height * width of a block]; across, height: see the class."""
        super().__init__()
        self.left, self.right, self.across, self.height = left, right, across, height
        # Weights files of low rank hold the factors alone.
        self.register_buffer("blocks", torch.tensor([across, height]), persistent=self.has_blocks)

    @property
    def has_blocks(self) -> bool:
        """Whether a row of left @ right is a block other than a whole row of the matrix."""
        return (self.across, self.height) != (1, 1)

    def dense(self) -> torch.Tensor:
        blocks = self.left.dense() @ self.right.dense()  # [blocks, height * width]
        if not self.has_blocks:
            return blocks
        blocks = blocks.view(-1, self.across, self.height, blocks.shape[1] // self.height)
        return blocks.transpose(1, 2).flatten(2).flatten(0, 1)

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows by index; if the matrix is of low rank, only these are computed.

        ids: int64 [...] -> float32 [..., columns].
        """
        return super().select(ids) if self.has_blocks else self.left.select(ids) @ self.right.dense()

    def take_rows(self, rows: torch.Tensor) -> Product:
        """Return a copy with these rows only. Raises UserError for a sum of Kronecker products."""
        self.check_low_rank()
        return Product(self.left.take_rows(rows), self.right)

    def check_low_rank(self) -> None:
        """Raise UserError for a sum of Kronecker products, from which no row or column can be removed."""
        if self.has_blocks:
            raise UserError("units of a sum of Kronecker products cannot be pruned; prune units before factorizing")

    def to_stream(self, out: Any) -> None:
        out.byte(KRONECKER if self.has_blocks else PRODUCT)
        out.number(len(self.right.dense()))
        if self.has_blocks:
            out.number(self.across)
            out.number(self.height)
        self.left.to_stream(out.factor("left"))
        self.right.to_stream(out.factor("right"))


def matrices(module: nn.Module) -> Iterator[tuple[str, Matrix]]:
    """Yield the name and matrix of every matrix of a module; for a product, those of its two factors instead."""
    for name, inner in module.named_modules():
        if isinstance(inner, Matrix) and not isinstance(inner, Product):
            yield name, inner


def replace_matrix(module: nn.Module, name: str, matrix: Matrix) -> None:
    """Replace the matrix of this name, in place."""
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, matrix)


def restore_matrices(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Replace a fresh student's matrices by those of a weights file, in place.

    Raises UserError if a matrix is missing, malformed or of another shape.
    """
    for name, fresh in list(matrices(module)):
        try:
            stored = Matrix.from_tensors(_below(tensors, name))
            shape, expected = list(stored.dense().shape), list(fresh.dense().shape)
        except (UserError, RuntimeError, ValueError, TypeError, IndexError) as error:
            raise UserError(f"{name}: {error}") from None
        if shape != expected:
            raise UserError(f"{name}: the file has {shape}, but manifest.json expects {expected}")
        replace_matrix(module, name, stored)


def _below(tensors: Mapping[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}
