"""The answers of a student in the C runtime, held against the NumPy runtime's."""

import numpy as np
import packed_students as made
import pytest
import tiny
from unicode_torture import TORTURE

from compression.runtime import PackedError, load, tidy
from compression.runtime.model import load_bytes
from compression.runtime.native import NativeModel, load_native

TEXTS = [*TORTURE, *(text for text, _ in tiny.sentences(20))]
NEAR = 1e-3


def both(folder, *kind, **more):
    """Return a student in both runtimes."""
    path = made.packed(folder / "s", *kind, **more)
    return load(path), load_native(path)


def refused(data):
    """Check that both readers refuse a file."""
    for reader in (load_bytes, NativeModel):
        with pytest.raises(PackedError):
            reader(data)


def check(theirs, ours, texts):
    """Check logits, probabilities and the labels that follow from them. theirs: NumPy's model."""
    texts = [tidy(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")) for text in texts]
    if theirs.pair:
        texts = list(zip(texts, texts[::-1], strict=True))
    expected, found = theirs.logits(texts), ours.logits(texts)
    assert found.shape == expected.shape
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    # Random students may answer with logits of thousands, whose rounding is in proportion.
    near = NEAR * max(1, np.nanmax(np.abs(expected)) / 100)
    assert np.nanmax(np.abs(found - expected)) < near
    if theirs.kind in ("labels", "tags"):
        # Of labels that are as near as rounding either may be first.
        chosen = np.take_along_axis(expected, np.nan_to_num(found).argmax(-1)[..., None], -1)[..., 0]
        assert np.nanmax(np.nanmax(np.nan_to_num(expected), -1) - np.nan_to_num(chosen)) < near / 10
    assert np.nanmax(np.abs(ours.probabilities(texts) - theirs.probabilities(texts))) < NEAR
    assert len(ours.predict(texts)) == len(list(ours.lines(texts))) == len(texts)
