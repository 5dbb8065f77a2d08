"""The vocabulary of a teacher, as its students use it: BERT's word pieces, or RoBERTa's byte-level pairs.

A student uses the pieces that text can contain, in the order of the teacher's vocabulary, the unknown one first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.store.files import read_json
from common.teachers.huggingface.pretrained import SUBFOLDER
from compression.runtime import WordPieces
from compression.tokenizers import UNCUT, TeacherTokenizer
from compression.tokenizers.bytelevel import LETTERS, UNKNOWN_PIECE, ByteLevelTokenizer, merge_parts
from compression.tokenizers.wordpiece import WordPieceTokenizer

_ROBERTA = ("<s>", "</s>")
_BERT = ("[CLS]", "[SEP]")


@dataclasses.dataclass(frozen=True)
class TeacherVocabulary:
    """The pieces of a teacher that text can contain, the unknown one first, and their rows in the teacher's table.

    whole: a student's tokenizer that never cuts text; rows: int64 [pieces], the teacher's row of each piece;
    special_tokens: its rows of the first token and the separator; separators: number of separators between the texts of
    a pair; mask: its row of the mask, or None.
    """

    whole: TeacherTokenizer
    rows: np.ndarray
    special_tokens: tuple[int, int]
    separators: int
    mask: int | None

    @property
    def pieces(self) -> list[str]:
        """The pieces as text, in the order of `rows`."""
        return self.whole.pieces

    def tokenizer(self, max_tokens: int) -> TeacherTokenizer:
        """Return a student's tokenizer of the same pieces."""
        return self.whole.cut_at(max_tokens)


def teacher_vocabulary(folder: Path) -> TeacherVocabulary:
    """Return the vocabulary of the teacher in a model folder. Raises UserError if it is of another kind."""
    file = folder / SUBFOLDER / "tokenizer.json"
    if not file.exists():
        raise UserError(f"--embedding-type wordpiece: {folder.name} is not a Hugging Face teacher")
    return vocabulary_of(read_json(file), folder.name)


def vocabulary_of(tokenizer: dict[str, Any], name: str) -> TeacherVocabulary:
    """Return the vocabulary in a teacher's tokenizer.json.

    Raises UserError if it is neither BERT's WordPiece nor RoBERTa's byte-level BPE.
    """
    model = tokenizer.get("model") or {}
    normalizer, words = (tokenizer.get(part) or {} for part in ("normalizer", "pre_tokenizer"))
    if model.get("type") == "WordPiece" and normalizer.get("type") == "BertNormalizer":
        if other := _other_than_bert(model, normalizer, words):
            raise UserError(f"--embedding-type wordpiece: {name}'s WordPiece is not BERT's ({', '.join(other)})")
        return _word_pieces(tokenizer, bool(normalizer.get("lowercase")))
    if model.get("type") != "BPE" or words.get("type") != "ByteLevel":
        raise UserError(
            f"--embedding-type wordpiece: {name} splits words by {model.get('type')}; "
            "students can take BERT's WordPiece and RoBERTa's byte-level BPE"
        )
    changes = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
    others = [change for change in changes if model.get(change)] + ["normalizer"] * bool(normalizer)
    others += ["use_regex"] * (words.get("use_regex") is False)
    if others:
        raise UserError(f"--embedding-type wordpiece: {name}'s byte-level BPE is not RoBERTa's ({', '.join(others)})")
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    separators = _separators(tokenizer.get("post_processor") or {})
    return _byte_level(model["vocab"], merges, bool(words.get("add_prefix_space")), separators, name)


def _other_than_bert(model: dict[str, Any], normalizer: dict[str, Any], words: dict[str, Any]) -> list[str]:
    """Return the settings of a WordPiece tokenizer that differ from BERT's, which `WordPieces` has.

    strip_accents is null where accents are removed from lowercase text, as in BERT.
    """
    lowercase = bool(normalizer.get("lowercase"))
    accents = normalizer.get("strip_accents")
    as_in_bert = {
        "clean_text": normalizer.get("clean_text", True) is True,
        "handle_chinese_chars": normalizer.get("handle_chinese_chars", True) is True,
        "strip_accents": accents in (None, lowercase),
        "pre_tokenizer": words.get("type") == "BertPreTokenizer",
        "continuing_subword_prefix": model.get("continuing_subword_prefix", "##") == "##",
        "max_input_chars_per_word": model.get("max_input_chars_per_word", WordPieces.longest_word)
        == WordPieces.longest_word,
    }
    return [setting for setting, same in as_in_bert.items() if not same]


def _word_pieces(tokenizer: dict[str, Any], lowercase: bool) -> TeacherVocabulary:
    unknown, rows = tokenizer["model"]["unk_token"], tokenizer["model"]["vocab"]
    not_text = {unknown, *(token["content"] for token in tokenizer.get("added_tokens", ()))}
    pieces = [unknown, *sorted(rows.keys() - not_text, key=rows.__getitem__)]
    processor = tokenizer.get("post_processor") or {}
    # MPNet's vocabulary has both masks, and it was trained with <mask>.
    mask = rows.get("<mask>" if "<mask>" in not_text else "[MASK]")
    return TeacherVocabulary(
        whole=WordPieceTokenizer(pieces, lowercase, UNCUT),
        rows=np.array([rows[piece] for piece in pieces], np.int64),
        special_tokens=_special_tokens(processor) or (rows[_BERT[0]], rows[_BERT[1]]),
        separators=_separators(processor),
        mask=mask,
    )


def _special_tokens(processor: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return a teacher's rows of the first token and the separator; None if its tokenizer.json does not name them.

    MPNet's pieces are BERT's, and its special tokens RoBERTa's. processor: of its tokenizer.json.
    """
    if "cls" in processor and "sep" in processor:
        return processor["cls"][1], processor["sep"][1]
    names = [part["SpecialToken"]["id"] for part in processor.get("single", ()) if "SpecialToken" in part]
    ids = [processor["special_tokens"][name]["ids"][0] for name in names]
    return (ids[0], ids[-1]) if ids else None


def _separators(processor: Mapping[str, Any]) -> int:
    """Return how many separators a teacher has between the texts of a pair. processor: of its tokenizer.json."""
    if processor.get("type") != "TemplateProcessing":
        return 2 if processor.get("type") == "RobertaProcessing" else 1
    kinds = ["Sequence" in part for part in processor.get("pair", ())]
    first = kinds.index(True)
    return kinds.index(True, first + 1) - first - 1


def _byte_level(
    rows: Mapping[str, int], merges: Sequence[tuple[str, ...]], prefix: bool, separators: int, name: str
) -> TeacherVocabulary:
    """Return a vocabulary of byte-level pairs. rows: of each piece and special token. Raises UserError."""
    pieces = ["".join(merge) for merge in merges]
    lacking = [piece for piece in (*_ROBERTA, UNKNOWN_PIECE, *LETTERS.values(), *pieces) if piece not in rows]
    if lacking:
        raise UserError(f"--embedding-type wordpiece: the byte-level vocabulary of {name} lacks {lacking[0]!r}")
    tokenizer = ByteLevelTokenizer(pieces, (), prefix, UNCUT)
    # The runtime merges by the order of merged pieces. That is the order of merges if each piece is merged from the two
    # that the vocabulary names.
    parts = merge_parts(tuple(pieces))
    odd = [piece for piece, merge in zip(pieces, merges, strict=True) if parts.get(piece) != merge]
    if odd:
        raise UserError(f"--embedding-type wordpiece: {name} has a piece that its own merges do not give: {odd[0]!r}")
    return TeacherVocabulary(
        whole=tokenizer,
        rows=np.array([rows[piece] for piece in tokenizer.pieces], np.int64),
        special_tokens=(rows[_ROBERTA[0]], rows[_ROBERTA[1]]),
        separators=separators,
        mask=rows.get("<mask>"),
    )
