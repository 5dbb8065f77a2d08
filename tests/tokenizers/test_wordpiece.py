"""Word pieces: ours are those of BERT's own tokenizer."""

import json
import string

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from packed_students import torch_logits
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing, RobertaProcessing, TemplateProcessing
from transformers import AutoTokenizer
from unicode_torture import TORTURE

from common.errors import UserError
from compression.evaluation.packed import load_packed
from compression.runtime import WordPieces
from compression.shrinking.chain import compress
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary, vocabulary_of
from compression.tokenizers.wordpiece import WordPieceTokenizer

LETTERS = [*string.ascii_lowercase, *string.ascii_uppercase, *string.digits, *string.punctuation, "\u00e9", "\u4e2d"]
WORDS = ("film", "##ing", "##ness", "the", "un", "##aff")
PIECES = ["[UNK]", *LETTERS, *(f"##{letter}" for letter in LETTERS[:62]), *WORDS]


def check_pieces(text, lowercase=True):
    theirs = Tokenizer(WordPiece({piece: row for row, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    theirs.normalizer, theirs.pre_tokenizer = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    assert WordPieces(PIECES, lowercase).encode(text) == theirs.encode(text).ids, ascii(text)


@pytest.mark.parametrize("lowercase", [True, False])
@given(
    text=st.one_of(
        st.text(),
        st.text(st.sampled_from("aAfilm .,'#n\u00e9\u0301\u4e2d\u00a0\t\x00\u200b")),
        st.sampled_from([text for text, _ in tiny.sentences(50)]),
    )
)
def test_pieces_are_berts(text, lowercase):
    check_pieces(text, lowercase)


def test_pieces_are_berts_on_torture():
    for text in TORTURE:
        if "\ue000" not in text:
            check_pieces(text)


def test_a_teachers_vocabulary_is_taken_without_its_special_tokens(prepared):
    folder = prepared / "models/sst-2/tiny-bert"
    vocabulary = teacher_vocabulary(folder)
    tokenizer, rows = vocabulary.tokenizer(50), vocabulary.rows
    saved = json.loads((folder / "huggingface/tokenizer.json").read_text())
    assert tokenizer.pieces[0] == "[UNK]"
    assert not {"[CLS]", "[SEP]", "[PAD]", "[MASK]"} & set(tokenizer.pieces)
    assert [saved["model"]["vocab"][piece] for piece in tokenizer.pieces] == rows.tolist()
    text = "a gorgeous , witty film nobody knows"
    theirs = AutoTokenizer.from_pretrained(folder / "huggingface")(text, add_special_tokens=False)["input_ids"]
    assert rows[tokenizer.encode([text]).ids[:, 0]].tolist() == theirs


@pytest.mark.parametrize(
    ("special", "mask", "processor"),
    [
        (("[CLS]", "[SEP]"), "[MASK]", lambda cls, sep: BertProcessing(sep, cls)),
        (
            ("[CLS]", "[SEP]"),
            "[MASK]",
            lambda cls, sep: TemplateProcessing(
                single=f"{cls[0]} $A {sep[0]}", pair=f"{cls[0]} $A {sep[0]} $B:1 {sep[0]}:1", special_tokens=[cls, sep]
            ),
        ),
        (("<s>", "</s>"), "<mask>", lambda cls, sep: RobertaProcessing(sep, cls)),  # MPNet
    ],
    ids=["bert", "template", "mpnet"],
)
def test_special_tokens_are_those_that_the_teacher_puts_around_texts(special, mask, processor):
    """MPNet's vocabulary also has BERT's special tokens, which it was never trained with."""
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "##ing", "<mask>", "</s>", "<s>"]
    theirs = Tokenizer(WordPiece({piece: row for row, piece in enumerate(pieces)}, unk_token="[UNK]"))
    theirs.normalizer, theirs.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    theirs.add_special_tokens([*special, mask])
    theirs.post_processor = processor(*((token, pieces.index(token)) for token in special))
    found = vocabulary_of(json.loads(theirs.to_str()), "teacher")
    first, separator = found.special_tokens
    film = pieces.index("film")
    assert theirs.encode("film").ids == [first, film, separator]
    assert theirs.encode("film", "film").ids == [first, film, *[separator] * found.separators, film, separator]
    assert found.mask == pieces.index(mask)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("normalizer", {"clean_text": False}),
        ("normalizer", {"handle_chinese_chars": False}),
        ("normalizer", {"strip_accents": False}),
        ("normalizer", {"lowercase": False, "strip_accents": True}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("model", {"continuing_subword_prefix": "@@"}),
        ("model", {"max_input_chars_per_word": 50}),
    ],
)
def test_word_pieces_that_are_not_berts_are_refused(part, changes):
    theirs = Tokenizer(WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "film": 3}, unk_token="[UNK]"))
    theirs.normalizer, theirs.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    content = json.loads(theirs.to_str())
    assert vocabulary_of(content, "teacher").pieces == ["[UNK]", "[CLS]", "[SEP]", "film"]
    assert vocabulary_of({**content, "normalizer": {"type": "BertNormalizer", "lowercase": False}}, "teacher")
    changed = {**content, part: {**content[part], **changes}}
    setting = part if "type" in changes else list(changes)[-1]
    with pytest.raises(UserError, match=rf"teacher's WordPiece is not BERT's \({setting}\)"):
        vocabulary_of(changed, "teacher")


def test_a_vocabulary_comes_back_and_a_damaged_one_is_refused(tmp_path):
    tokenizer = WordPieceTokenizer(PIECES, True, 9)
    tokenizer.save(tmp_path)
    back = WordPieceTokenizer.load(tmp_path, len(PIECES), 9)
    assert (back.pieces, back.identity) == (PIECES, tokenizer.identity)
    assert back.without([1, 2]).pieces == [PIECES[0], *PIECES[3:]]
    with pytest.raises(UserError, match="pieces, the student has 5"):
        WordPieceTokenizer.load(tmp_path, 5, 9)
    for pieces in ([1], 1, "abcdefghi", ["\ud800"] * 9):
        (tmp_path / "wordpieces.json").write_text(json.dumps({"lowercase": True, "pieces": pieces}))
        with pytest.raises(UserError, match="not a vocabulary of word pieces"):
            WordPieceTokenizer.load(tmp_path, 9, 9)
    (tmp_path / "wordpieces.json").write_text('{"pieces": []}')
    with pytest.raises(UserError, match="not a vocabulary of word pieces"):
        WordPieceTokenizer.load(tmp_path, len(PIECES), 9)


def test_a_student_of_word_pieces_is_pruned_quantized_and_packed(workspace):
    actions = ("distill", "prune", "quantize", "pack")
    given = tiny.small(student_arch="transformer", embedding_type="wordpiece", prune_vocabulary=2, bits=4)
    settings = tiny.compress_settings(task="sst-2", workspace=workspace, compression_actions=actions, **given)
    folder = compress(settings)[-1]
    texts = [text for text, _ in tiny.sentences(20)]
    packed = load_packed(settings.paths.packed("sst-2", folder.name)).logits(texts)
    assert np.allclose(packed, torch_logits(folder, texts), atol=1e-4)


def test_a_teacher_without_word_pieces_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a Hugging Face teacher"):
        teacher_vocabulary(tmp_path).tokenizer(9)
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface/tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(UserError, match="splits words by BPE; students can take"):
        teacher_vocabulary(tmp_path).tokenizer(9)
