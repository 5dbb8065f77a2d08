"""Fixtures: files of byte pairs trained on the tiny sentences."""

import pytest
import tiny

from compression.tokenizers.bpe_files import find_files

TEXTS = [text for text, _ in tiny.sentences(60)]


@pytest.fixture(scope="session")
def bpe_files(tmp_path_factory):
    """(sentencepiece model of 70 pieces, vectors of width 5)."""
    return find_files(70, 5, "train", TEXTS, tmp_path_factory.mktemp("bpe"))
