"""Columns of Parquet files with a list for every text, a value for each of its words."""

import numpy as np
import pyarrow as pa

from common.data.ragged import known, padded


def to_lists(values: np.ndarray, kind: pa.DataType) -> pa.ListArray:
    """A padded array [n, words] (see common.data.ragged) as a column of lists."""
    inside = known(values)
    offsets = np.concatenate([[0], np.cumsum(inside.sum(1))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values[inside], kind))


def from_lists(column: pa.ChunkedArray) -> np.ndarray:
    """The padded array [n, words] of a column of lists."""
    whole = column.combine_chunks()
    return padded(whole.flatten().to_numpy(zero_copy_only=False), whole.value_lengths().to_numpy().astype(np.int64))
