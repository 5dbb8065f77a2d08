"""A student with all its matrices in 8 bits, without saving it first."""

from compression.shrinking.quantization.scheme import Scheme
from compression.students.weights import matrices, replace_matrix


def quantize(student):
    """Quantize every matrix of a student, in place: a range for each row, hash importance in 16 bits."""
    for name, matrix in list(matrices(student)):
        replace_matrix(student, name, Scheme(ranges="minmax").quantize(matrix.dense().detach()))
