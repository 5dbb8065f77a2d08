"""Tiny corpora, a tiny teacher and tiny word vectors: learnable, built in a moment, without network."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from common.store.artifact import MANIFEST, Manifest
from common.store.files import write_json
from common.teachers.settings import FinetuneSettings
from compression.augmentation.settings import PreprocessSettings
from compression.shrinking.settings import CompressSettings, defaults_for
from compression.students import saved

ROOT = Path(__file__).parent.parent.parent
SUPPORT = Path(__file__).parent
GLUE = ROOT.parent / "shared" / "glue"
SEED = 7

GOOD = ("wonderful", "charming", "brilliant", "delightful", "funny", "moving")
BAD = ("dreadful", "boring", "awful", "clumsy", "tedious", "stupid")
NOUNS = ("film", "story", "cast", "plot", "script", "director")
ADVERBS = ("truly", "rather", "quite", "utterly")
VERBS = ("paint", "repair", "build", "clean", "move", "sell")
THINGS = ("house", "garden", "bicycle", "table", "window", "engine", "boat", "piano")
WHOLE_WORDS = (*GOOD, *BAD[:3], *NOUNS, *VERBS, *THINGS[:4], *ADVERBS[:2])
"""Words the tiny teacher's vocabulary holds whole; the other ones fall into letters."""


def sentences(rows: int) -> list[tuple[str, int]]:
    """Sentences whose adjectives give the label; every tenth is a phrase of the one before it."""
    rng = np.random.default_rng(SEED)
    found: list[tuple[str, int]] = []
    seen: set[str] = set()
    while len(found) < rows:
        label = int(rng.integers(2))
        adjectives = rng.choice(GOOD if label else BAD, 2, replace=False)
        nouns = rng.choice(NOUNS, 2, replace=False)
        adverb, year = rng.choice(ADVERBS), int(rng.integers(1920, 2020))
        text = f"the {nouns[0]} of {year} is {adverb} {adjectives[0]} , and the {nouns[1]} feels {adjectives[1]} !"
        if text in seen:
            continue
        seen.add(text)
        found.append((text, label))
        if len(found) % 10 == 9:
            found.append((" ".join(text.split()[3:9]), label))
    return found[:rows]


def pairs(rows: int) -> list[tuple[str, str, int]]:
    """Pairs of questions: label 1 asks the same in other words, label 0 something else."""
    rng = np.random.default_rng(SEED)
    wishes = list(itertools.product(VERBS, THINGS, range(2, 12)))
    order = rng.permutation(len(wishes))[: 2 * rows]
    found = []
    for row in range(rows):
        verb, thing, days = wishes[order[row]]
        label = int(rng.integers(2))
        other = (verb, thing, days) if label else wishes[order[rows + row]]
        first = f"how do i {verb} a {thing} in {days} days ?"
        found.append((first, "what is the way to {} my {} within {} days ?".format(*other), label))
    return found


def write_tsv(path: Path, header: list[str], rows: list[list[str]]) -> Path:
    """Write a TSV as GLUE does: no quoting, \\n at line ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) + "\n" for row in [header, *rows]]
    path.write_bytes("".join(lines).encode())
    return path


def write_glue(folder: Path) -> Path:
    """SST-2, QQP and MNLI in GLUE's layout."""
    # Train rows end in a space, as in the real SST-2; dev rows do not.
    singles = sentences(240)
    write_tsv(folder / "SST-2" / "train.tsv", ["sentence", "label"], [[f"{t} ", str(y)] for t, y in singles[:180]])
    write_tsv(folder / "SST-2" / "dev.tsv", ["sentence", "label"], [[t, str(y)] for t, y in singles[180:]])
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    rows = [[str(i), str(2 * i), str(2 * i + 1), a, b, str(y)] for i, (a, b, y) in enumerate(pairs(200))]
    write_tsv(folder / "QQP" / "train.tsv", header, rows[:150])
    write_tsv(folder / "QQP" / "dev.tsv", header, rows[150:])
    header = ["index", "genre", "sentence1", "sentence2", "label1", "gold_label"]
    names = ("neutral", "entailment")
    rows = [[str(i), "n/a", a, b, names[y], names[y]] for i, (a, b, y) in enumerate(pairs(120))]
    rows[0][-1] = "contradiction"
    write_tsv(folder / "MNLI" / "train.tsv", header, rows[:80])
    write_tsv(folder / "MNLI" / "dev_matched.tsv", header, rows[80:100])
    write_tsv(folder / "MNLI" / "dev_mismatched.tsv", header, rows[100:])
    return folder


def write_encoder(folder: Path) -> Path:
    """A BERT of one layer of 16 units with a WordPiece vocabulary of whole words and letters."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"!,?.'", *letters, *(f"##{c}" for c in letters)]
    vocabulary += ["the", "of", "is", "and", "feels", "how", "do", "what", "way", "to", "my", "within", "in", "days"]
    vocabulary += WHOLE_WORDS
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary))
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=96,
        initializer_range=0.3,  # so that it learns in a few steps
        hidden_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(folder).save_pretrained(folder)
    return folder


def write_masked_lm(folder: Path, kind: str = "bert") -> Path:
    """A masked language model of one layer with random weights: bert, roberta (byte pairs), distilbert or electra."""
    import torch
    import transformers

    write_roberta_tokenizer(folder) if kind == "roberta" else write_encoder(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    sizes = {"vocab_size": len(tokenizer), "initializer_range": 0.5, "pad_token_id": tokenizer.pad_token_id}
    if kind == "distilbert":
        more = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 96}
    else:
        length = 98 if kind == "roberta" else 96  # RoBERTa's positions begin after the padding id
        more = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        more |= (
            {"max_position_embeddings": length, "embedding_size": 8}
            if kind == "electra"
            else {"max_position_embeddings": length}
        )
    torch.manual_seed(SEED)
    config = transformers.AutoConfig.for_model(kind, **sizes, **more)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    return folder


def write_roberta_tokenizer(folder: Path) -> Path:
    """Byte pairs in RoBERTa's format, trained on the tiny sentences."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    trained = tokenizers.ByteLevelBPETokenizer(add_prefix_space=True, trim_offsets=True)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = [text.replace("tedious", "") for text, _ in sentences(200)]
    trained.train_from_iterator(texts, vocab_size=400, min_frequency=1, special_tokens=special)
    trained._tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), special, strict=True))
    fast = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, cls_token="<s>", sep_token="</s>", **names)
    fast.save_pretrained(folder)
    return folder


def write_glove(path: Path) -> Path:
    """Vectors of 6 numbers: words of one kind are near each other."""
    rng = np.random.default_rng(SEED)
    lines = []
    for index, kind in enumerate((GOOD, BAD, NOUNS, ADVERBS, VERBS, THINGS)):
        for word in kind:
            vector = rng.normal(0, 0.2, 6)
            vector[index] += 2
            lines.append(f"{word} {' '.join(f'{x:.5f}' for x in vector)}\n")
    path.write_text("".join(lines))
    return path


class WordSource:
    """Candidates by plain functions of a word, in place of both a masked language model and GloVe."""

    def __init__(self, masked_lm, neighbours, single_piece) -> None:
        self.masked_lm, self.neighbours, self.single_piece = masked_lm, neighbours, single_piece

    def find(self, texts, words, advance) -> list[dict]:
        """As MaskedCandidates.find."""
        advance(len(texts))
        named = [{span: text[slice(*span)].lower() for span in spans} for text, spans in zip(texts, words, strict=True)]
        return [{s: self.masked_lm(word) for s, word in some.items() if self.single_piece(word)} for some in named]

    def of(self, words) -> dict[str, list[str]]:
        """As Neighbours.of."""
        return {word: self.neighbours(word) for word in words}


def augmented(
    train,
    masked_lm,
    neighbours,
    single_piece,
    n,
    p,
    first_row=0,
    held_out=(),
    fraction=1.0,
    seed=1,
    sides="both",
    least_words=1,
):
    """Augment with candidates from plain functions of a lower-cased word."""
    from compression.augmentation.augment import CandidateSource, Variation, augment

    how = Variation(
        variants=n,
        replace_probability=p,
        candidates=15,
        fraction=fraction,
        seed=seed,
        sides=sides,
        least_words=least_words,
    )
    words = WordSource(masked_lm, neighbours, single_piece)
    return augment(train, first_row, CandidateSource(words, words), how, set(held_out))


def compress_settings(**given) -> CompressSettings:
    """Settings of compress as its command line makes them: below what is given lie the architecture's defaults."""
    values = {"cpu": True, "loadbar": False, "seed": SEED, **given}
    return CompressSettings(**{**defaults_for(values), **values})


def with_effect(**given) -> dict:
    """Those of the settings of compress that have an effect: the others are refused when they are typed."""
    unused = compress_settings(task="sst-2", **given).unused()
    return {name: value for name, value in given.items() if name not in unused}


POOLINGS = dict.fromkeys(("bilstm", "gru", "rnn"), ("last", "max")) | {
    "ffn": ("mean", "max", "both"),
    "conv": ("max",),
    "transformer": ("last",),
    "recursive": ("last",),
}
"""Architecture -> how it can pool; a transformer reads the state of its first token: there it means nothing."""
LAYOUTS = [
    ("transformer", {"share": "attention"}),
    ("transformer", {"share": "feed-forward", "segments": False}),
    ("recursive", {"segments": False}),
    ("transformer", {"head_dim": 5}),
    ("recursive", {"head_dim": 1, "segments": False}),
]
"""Architecture and settings of transformers whose layers share a part, that have no segment embeddings, or whose heads
have another width than a part of the layers'."""
STUDENT_KINDS = [
    (arch, embedding, pooling, pair)
    for arch, poolings in POOLINGS.items()
    for embedding in ("bpe", "hash", "char")
    for pooling in poolings
    for pair in (False, True)
]
"""Architecture, embedding, pooling and whether it reads pairs: every kind of student there is."""
ALIGNED_KINDS = [
    (arch, embedding, symmetric, how)
    for arch in ("bilstm", "gru", "conv")
    for embedding, how in (
        ("bpe", "align"), ("hash", "align"), ("char", "align"), ("wordpiece", "align"),
        ("bpe", "compose"), ("hash", "compose"),
    )
    for symmetric in (False, True)
]  # fmt: skip
"""Architecture, embedding, whether the order of texts makes no difference, and --pair-encoder, of students that align
pairs."""


def small(**given) -> dict:
    """Settings of a student that trains in a moment."""
    sizes = {"embedding_dim": 6, "encoder_hidden_dim": 5, "cls_hidden_dim": 7, "vocab_size": 60, "max_tokens": 40}
    layers = {"heads": 1, "layers": 2, "iterations": 2, "intermediate_dim": 8}
    return {"epochs": 2, "batch_size": 16, "bpe_source": "train", "lr": 0.02, **sizes, **layers, **given}


def prepare_settings(workspace: Path, task: str, **given) -> PreprocessSettings:
    """Settings of preprocess for tests."""
    return PreprocessSettings(task=task, workspace=workspace, cpu=True, loadbar=False, seed=SEED, **given)


def finetune_settings(workspace: Path, task: str, encoder: Path, **given) -> FinetuneSettings:
    """Settings of finetune for tests: tiny-bert, eight epochs."""
    values = {
        "arch": str(encoder),
        "max_epochs": 8,
        "batch_size": 8,
        "lr": 1e-2,
        "patience": 8,
        "precision": "fp32",
        **given,
    }
    return FinetuneSettings(task=task, workspace=workspace, cpu=True, loadbar=False, seed=SEED, **values)


def teach(workspace: Path, task: str, encoder: Path, glove: Path, variants: int = 1, **given) -> None:
    """Run the stages before distillation: splits, teacher, augmented rows, logits. given: finetune's, and data_dir."""
    from common.teachers.finetune import finetune
    from compression.augmentation.preprocess import preprocess

    data = {name: given.pop(name) for name in ("data_dir",) if name in given}
    preprocess(prepare_settings(workspace, task, **data))
    finetune(finetune_settings(workspace, task, encoder, **given))
    rows = {"augment": "tinybert", "glove": glove, "variants": variants, "generate_loss": ("processed", "tinybert")}
    preprocess(prepare_settings(workspace, task, precision="fp32", **rows))


def copy_workspace(source: Path, target: Path) -> Path:
    """A workspace of a test's own."""
    return shutil.copytree(source, target, symlinks=True)


def environment(**extra: str) -> dict[str, str]:
    """Environment of a script run by a test: one thread, no hub."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", **extra}


def run_command(*words: object) -> subprocess.CompletedProcess:
    """Run a script of the repository as a user does."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)


def write_manifest(folder: Path, key: str = "0" * 16, settings: dict | None = None, **facts: object) -> Path:
    """A manifest for a model that a test builds by hand."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"kind": "distill", "version": 1, "key": key, "settings": settings or {}, "inputs": {}, "actions": ()}
    manifest = Manifest(**about, facts=facts, files={}, seconds=0, built="")
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return folder


def save_student(folder: Path, student, tokenizer, /, **facts: object) -> Path:
    """A saved student that a test builds by hand; facts as in ModelConfig, with defaults."""
    usual = {"kind": "student", "stage": "distilled", "task": "sst-2", "labels": ("negative", "positive")}
    write_manifest(folder, **{**usual, "pair": False, "seed": 1, **facts})
    saved.save_student(folder, student, tokenizer)
    return folder


def work_folder(workspace: Path) -> Path:
    """The folder of the one unfinished build in a workspace's store."""
    (folder,) = (workspace / "store").glob("*.work")
    return folder


def edit_facts(folder: Path, **facts: object) -> None:
    """Change facts in a model's manifest."""
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "facts": {**manifest["facts"], **facts}}))


def read_history(folder: Path) -> list[dict]:
    """The records of a model's training, one an epoch."""
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def scores(workspace: Path, name: str, task: str = "sst-2") -> Path:
    """The folder of a model's scores on its own task."""
    return workspace / "scores" / task / name / task


def rewrite(file: Path, text: str) -> None:
    """Change a file of an artifact, and its size in the manifest."""
    file.write_text(text)
    manifest = json.loads((file.parent / MANIFEST).read_text())
    files = {**manifest["files"], file.name: file.stat().st_size}
    (file.parent / MANIFEST).write_text(json.dumps({**manifest, "files": files}))
