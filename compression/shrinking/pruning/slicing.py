"""Rows and columns taken out of float matrices; of a product, out of the factor that has them."""

from __future__ import annotations

import torch

from compression.students.weights import Dense, Matrix, Product


def select_rows(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """Return a matrix of some rows. kept: int64 [rows that stay]."""
    if isinstance(matrix, Product):
        return Product(select_rows(matrix.left, kept), matrix.right)
    return Dense(matrix.dense().detach()[kept].clone())


def select_columns(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """Return a matrix of some columns. kept: int64 [columns that stay]."""
    if isinstance(matrix, Product):
        return Product(matrix.left, select_columns(matrix.right, kept))
    return Dense(matrix.dense().detach()[:, kept].clone())


def row_factor(matrix: Matrix) -> Dense:
    """Return the factor with a float matrix's rows."""
    return row_factor(matrix.left) if isinstance(matrix, Product) else matrix


def column_factor(matrix: Matrix) -> Dense:
    """Return the factor with a float matrix's columns."""
    return column_factor(matrix.right) if isinstance(matrix, Product) else matrix
