"""Rows and columns taken out of float matrices: what is left is really smaller."""

from __future__ import annotations

import torch

from compression.students.weights import Dense, Matrix, Product


def rows_of(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """The matrix with these rows only. kept: int64 [rows that stay]."""
    if isinstance(matrix, Product):
        return Product(rows_of(matrix.left, kept), matrix.right)
    return Dense(matrix.dense().detach()[kept].clone())


def columns_of(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """The matrix with these columns only. kept: int64 [columns that stay]."""
    if isinstance(matrix, Product):
        return Product(matrix.left, columns_of(matrix.right, kept))
    return Dense(matrix.dense().detach()[:, kept].clone())


def first_factor(matrix: Matrix) -> Dense:
    """The part of a float matrix that its rows are in."""
    return first_factor(matrix.left) if isinstance(matrix, Product) else matrix


def last_factor(matrix: Matrix) -> Dense:
    """The part of a float matrix that its columns are in."""
    return last_factor(matrix.right) if isinstance(matrix, Product) else matrix
