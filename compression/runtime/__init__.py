"""Packed students without PyTorch: loads a .fwt file and answers texts with numpy and the standard library alone.

    model = load("sst-2-12k")    # a name of the zoo, or the path of a packed file
    model.labels, model.predict(["a gorgeous , witty film"]), model.probabilities(["a gorgeous , witty film"])

or `python -m compression.runtime sst-2-12k "a gorgeous , witty film"`. docs/format.md has the format byte by byte;
compression/packing writes it. Read the modules in the order reader, entropy, weights, words, tokenizers, vocabulary,
shapes, spans, kinds, header, encoders, alignment, zoo, model, __main__. They import nothing of the project, and `make
runtime` joins them into one file.

Files are not trusted: every length is checked before anything is allocated, and every fault raises PackedError.
"""

# ruff: noqa: F401 - names that the rest of the project uses

from __future__ import annotations

import os
import sys

if sys.argv[:1] == ["-m"]:
    # `python -m compression.runtime`, while Python looks for the module. Before numpy loads: products this small gain
    # nothing from threads, which take time to start and to wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from .kinds import to_probabilities
from .model import Model, load, load_bytes
from .reader import PackedError
from .shapes import TRANSFORMERS, EncoderSize, student_shapes
from .spans import merge_windows, windows_of
from .tokenizers.bpe import DUMMY_PREFIX, SQUEEZE, WORDS, BytePairs, prepare
from .tokenizers.bytelevel import BYTE_LEVEL, ByteLevelPairs
from .tokenizers.char import ALPHABET, Characters
from .tokenizers.hash import HASHES, HashedWords, hash_codes
from .tokenizers.merges import UNKNOWN, UNUSED, USED, Merges
from .tokenizers.ngrams import SPARE_BITS, NGrams, fingerprint_bits, fingerprint_of, parts_of
from .tokenizers.normalisation import IDENTITY, NFKC, NMT_NFKC, Normaliser
from .tokenizers.wordpiece import WordPieces
from .weights import AFFINE, CODEBOOK, FLOAT16, FLOAT32, KRONECKER, PER_COLUMN, PER_ROW, PRODUCT, RESIDUAL
from .words import tidy
from .zoo import PACKED_SUFFIX, is_name, zoo_file, zoo_hint, zoo_names
