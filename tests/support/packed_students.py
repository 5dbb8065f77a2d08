"""Folders of untrained students: random weights in any form a weights file may have, and tiny vocabularies."""

import functools
import io
import json
from pathlib import Path

import numpy as np
import sentencepiece
import tiny
import torch
from safetensors.numpy import save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import ByteLevelBPETokenizer

from common.data.split import Split
from common.kinds.registry import KINDS
from compression.packing import pack_student
from compression.students.batch import EncodedRows
from compression.students.saved import load_student
from compression.students.scoring import student_logits
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.tokenizers.bpe_model import in_groups, mark_unused
from compression.tokenizers.bytelevel import ByteLevelTokenizer
from compression.tokenizers.ngrams import choose_ngrams

ARCHS, EMBEDDINGS = tuple(tiny.POOLINGS), ("bpe", "hash", "char", "wordpiece")
FORMS = ("float32", "float16", "pruned", "affine-row", "affine-column", "affine-all", "ternary", "codebook",
         "codebook-row", "product", "kronecker")  # fmt: skip
TRANSFORMERS = ("transformer", "recursive")
TRANSFORMER = {"encoder_hidden_dim": 8, "heads": 2, "layers": 2, "iterations": 3, "intermediate_dim": 9, "adapters": 4}
ALIGNED = {"pair": True, "pooling": "max", "pair_encoder": "align"}
DIM, HIDDEN, CLASSIFIER, VOCAB, KERNEL = 6, 5, 7, 120, 3


@functools.cache
def pieces(vocab_size=VOCAB, grouped=True, **more):
    """Bytes of a sentencepiece model trained on the tiny sentences, and on a few letters beyond ASCII.

    grouped: with its merges in groups, as those trained here.
    """
    texts = [text.lower() for text, _ in tiny.sentences(200)] + ["caf\u00e9 na\u00efve \ud55c\uad6d \u03c3\u03c2 0"] * 3
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=file, model_type="bpe", vocab_size=vocab_size,
        character_coverage=1.0, num_threads=1, minloglevel=2, **more,
    )  # fmt: skip
    return in_groups(file.getvalue()) if grouped else file.getvalue()


def unused(model, share):
    """Return a model file's bytes, with a share of its pieces marked UNUSED."""
    pieces, rng = ModelProto.FromString(model).pieces, np.random.default_rng(1)
    normal = ModelProto.SentencePiece.NORMAL
    return mark_unused(model, [i for i, piece in enumerate(pieces) if piece.type == normal and rng.random() < share])


@functools.cache
def word_pieces():
    """The unknown piece, letters, letters within words, and words, in no order."""
    letters = sorted({letter for text, _ in tiny.sentences(200) for letter in text.lower() if letter != " "})
    words = sorted({word for text, _ in tiny.sentences(20) for word in text.lower().split()}, reverse=True)
    return list(dict.fromkeys(["[UNK]", *words, *letters, *(f"##{letter}" for letter in letters), "\u4e2d"]))


@functools.cache
def byte_level():
    """Byte-level pairs trained on the tiny sentences, some of them without a row, and text gets a space in front."""
    trained = ByteLevelBPETokenizer()
    texts = [text for text, _ in tiny.sentences(200)] + ["Caf\u00e9 \u4e2d\u6587"] * 3
    trained.train_from_iterator(texts, vocab_size=400, min_frequency=1, show_progress=False)
    merges = json.loads(trained.to_str())["model"]["merges"]
    tokenizer = ByteLevelTokenizer(["".join(merge) for merge in merges], (), prefix=True, max_tokens=512)
    return tokenizer.without({*range(3, 40), *range(300, 330)})


@functools.cache
def ngrams(vocab_size=VOCAB, max_tokens=512):
    """N-grams chosen by the labels of the tiny sentences, among them some beyond ASCII."""
    texts, labels = zip(*tiny.sentences(200), strict=True)
    more = [
        "caf\u00e9 na\u00efve \ud55c\uad6d\uc5b4 \u4e2d\u6587 \u03c3\u03c2\u03bf\u03c6\u03ce\u03c2 \U0001f600 !"
    ] * 40
    rows = Split([*texts, *more], None, np.array([*labels] + [1] * 40), np.arange(240))
    return choose_ngrams(rows, vocab_size, max_tokens)


def matrix(rng, shape, form):
    """Tensors of a matrix, by the last part of their names."""
    rows, columns = shape
    value = rng.normal(0, 0.5, shape).astype(np.float32)
    if form == "float32":
        return {"value": value}
    if form == "float16":
        return {"value": value.astype(np.float16)}
    if form == "pruned":
        return {"value": np.where(rng.random(shape) < 0.8, 0, value).astype(np.float32)}
    if form == "product":
        left, right = matrix(rng, (rows, 2), "affine-row"), matrix(rng, (2, columns), "float32")
        return {f"left.{k}": v for k, v in left.items()} | {f"right.{k}": v for k, v in right.items()}
    if form == "kronecker":
        across, height = smallest_factor(columns), smallest_factor(rows)
        blocks, size = rows // height * across, columns // across * height
        left, right = matrix(rng, (blocks, 2), "pruned"), matrix(rng, (2, size), "affine-all")
        factors = {f"left.{k}": v for k, v in left.items()} | {f"right.{k}": v for k, v in right.items()}
        return factors | ({"blocks": np.array([across, height])} if (across, height) != (1, 1) else {})
    if form.startswith("codebook"):
        books = rows if form == "codebook-row" else 1
        book = np.sort(rng.normal(0, 0.5, (books, 5)), 1).astype(np.float32)
        return {"codes": rng.integers(0, 5, shape, dtype=np.uint8), "codebook": book}
    lines = {"affine-row": (rows, 1), "affine-column": (1, columns), "affine-all": (1, 1), "ternary": (rows, 1)}[form]
    levels = 3 if form == "ternary" else 16
    zero_point = np.ones(lines, np.uint8) if form == "ternary" else rng.integers(6, 10, lines, dtype=np.uint8)
    codes = np.clip(np.round(rng.normal(levels / 2, levels / 5, shape)), 0, levels - 1).astype(np.uint8)
    return {"codes": codes, "scale": rng.uniform(0.02, 0.2, lines).astype(np.float32), "zero_point": zero_point}


def smallest_factor(number):
    """The smallest number above 1 that divides it, 1 of 1."""
    return next((factor for factor in range(2, number + 1) if number % factor == 0), 1)


def write_student(folder, arch, embedding, form="float32", pair=False, pooling=None, seed=1, **given):
    """Write and return a student's folder. embedding: also bytelevel, a RoBERTa's pieces. given: other student
    settings, `model` (a sentencepiece model's bytes), `labels`, `kind`, `f1`, `edit`, `transformer`
    (its sizes)."""
    rng = np.random.default_rng(seed)
    transformer = given.pop("transformer", TRANSFORMER)
    model = given.pop("model", None) or pieces()
    labels, edit, f1 = given.pop("labels", ["bad", "good", "so-so"]), given.pop("edit", None), given.pop("f1", False)
    kind = KINDS[given.pop("kind", "labels" if labels else "numbers")]
    sizes = {"embedding_dim": DIM, "encoder_hidden_dim": HIDDEN, "cls_hidden_dim": CLASSIFIER, "vocab_size": VOCAB,
             "hash_ratio": 10, "max_tokens": 512, "kernel_width": KERNEL, **given}  # fmt: skip
    if arch in TRANSFORMERS:
        sizes |= transformer
    if embedding == "wordpiece":
        sizes["vocab_size"] = len(word_pieces())
    if embedding == "bytelevel":
        sizes["vocab_size"] = byte_level().vocab_size
    sizes |= {
        "embedding_type": "wordpiece" if embedding == "bytelevel" else embedding,
        "pooling": pooling or tiny.POOLINGS[arch][0],
    }
    spec = StudentSpec(arch, StudentSettings(**sizes), kind.outputs(labels), pair, kind.by_word)
    shapes, tensors = spec.shapes(), {}
    for name in spec.vectors():
        biases = (f"{name}_ih",) if arch == "gru" else (f"{name}_ih", f"{name}_hh")
        for own in biases if name.endswith("_rnn.bias") else (name,):
            tensors[own] = rng.normal(0, 0.3, shapes[name]).astype(np.float32)
    for name in spec.matrices():
        own = "float16" if name.startswith("embedding.importance") and form != "pruned" else form
        own = "product" if name.startswith("embedding.") and form == "kronecker" else own  # its rows are sorted
        tensors |= {f"{name}.{key}": value for key, value in matrix(rng, shapes[name], own).items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if edit is not None:
        edit(tensors)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors")
    if embedding == "bpe":
        (folder / "bpe.model").write_bytes(model)
    if embedding == "wordpiece":
        (folder / "wordpieces.json").write_text(json.dumps({"lowercase": True, "pieces": word_pieces()}))
    if embedding == "bytelevel":
        byte_level().save(folder)
    if embedding == "ngrams":
        ngrams(sizes["vocab_size"], sizes["max_tokens"]).save(folder)
    about = {"pair": pair, "task_kind": kind.name, "f1": f1}
    config = {"kind": "student", "stage": "distilled", "task": "films", "labels": labels,
              **about, "arch": arch, "seed": 1, "student": sizes}  # fmt: skip
    return tiny.write_manifest(folder, **config)


def spread(tensors):
    """Make answers decided, and none of the labels usual: an edit for write_student."""
    tensors["classifier.3.weight.value"] *= 8
    tensors["classifier.3.bias"][:] = 0


def write_packed(folder):
    """Pack a student into its own folder, and return the file."""
    path = folder / f"{folder.name}.fwt"
    path.write_bytes(pack_student(folder))
    return path


def packed(folder, *kind, **given):
    """The packed file of a student that is written into a folder, as by write_student."""
    return write_packed(write_student(folder, *kind, **given))


@functools.lru_cache(4)
def _loaded(folder):
    return load_student(folder, torch.device("cpu"))[:2]


def torch_logits(folder, texts):
    """PyTorch's logits of texts (or pairs), one after the other."""
    student, tokenizer = _loaded(folder)
    columns = [[text] for text in texts] if isinstance(texts[0], str) else [list(pair) for pair in texts]
    rows = (EncodedRows(*(tokenizer.encode([sentence]) for sentence in sentences)) for sentences in columns)
    return np.concatenate([student_logits(student, row, torch.device("cpu")) for row in rows])
