"""The values of --quantizer and --decomposition. This module imports no large library, because --help uses it."""

import dataclasses

from common.choices import Choice


@dataclasses.dataclass(frozen=True)
class Quantizer(Choice):
    """How weights become codes. Its function: weights [groups, size], levels, --ranges -> `Ranges`."""

    suffix: str = ""
    """What it adds to a model's name."""
    values: int | None = None
    """Number of values of a code; None: set by --bits."""
    columns: bool = True
    """Whether --granularity column is possible."""
    thesis: bool = False
    """Whether it is the thesis's: each row has a range at plain 8 bits, and 16 bits (float16 numbers) are possible."""


_SCHEME = "compression.shrinking.quantization.scheme"
QUANTIZERS = {
    "affine": Quantizer("evenly spaced values", f"{_SCHEME}:affine", thesis=True, settings=("ranges",)),
    "ternary": Quantizer("three values", f"{_SCHEME}:ternary", "t", values=3),
    "coded": Quantizer(
        "evenly spaced values, as many as their distance needs for about --bits a weight in a packed file",
        f"{_SCHEME}:coded",
        "e",
    ),
    "codebook": Quantizer("k-means centroids", f"{_SCHEME}:codebook", "c", columns=False),
}


@dataclasses.dataclass(frozen=True)
class Decomposition(Choice):
    """How a matrix becomes a product. Its function: matrix, rank, how often text uses each row or None -> Product."""

    suffix: str = ""
    """What it adds to a model's name."""
    embedding: bool = True
    """Whether it is used for the embedding, whose rows are reordered in a packed file; if not, svd is used there."""


_FACTORIZE = "compression.shrinking.factorize"
DECOMPOSITIONS = {
    "svd": Decomposition("matrices of low rank", f"{_FACTORIZE}:low_rank"),
    "kronecker": Decomposition(
        "sums of Kronecker products with as many weights, where these are nearer to the matrix",
        f"{_FACTORIZE}:kronecker",
        "k",
        embedding=False,
    ),
}
