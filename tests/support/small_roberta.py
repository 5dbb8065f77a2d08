"""A small RoBERTa trained by fairseq itself, in its own checkpoint format."""

import argparse
import collections
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tiny
import torch
from tokenizers import ByteLevelBPETokenizer

from common.data.split import Split
from common.kinds.base import Kind
from common.kinds.registry import LABELS
from common.teachers.fairseq import training as fairseq_training
from common.teachers.fairseq.checkpoint import load_checkpoint, read_model
from common.teachers.fairseq.library import load_fairseq, quiet
from common.teachers.finetune import finetune
from common.teachers.settings import FinetuneSettings, defaults_for

SHARED = tiny.ROOT.parent / "shared" / "gpt2_bpe"
"""GPT-2's vocabulary, where it is there."""
CPU = torch.device("cpu")
HEAD = "sentence_classification_head"
"""fairseq's own name for the classification head."""
TEXT = [text for text, _ in tiny.sentences(240)] + [text for a, b, _ in tiny.pairs(60) for text in (a, b)]


def make(folder: Path) -> Path:
    """Write model.pt ('cfg' format), dict.txt, encoder.json and vocab.bpe to `folder`."""
    folder.mkdir(parents=True)
    learn_vocabulary(folder)
    work = folder / "work"
    work.mkdir()
    _binarize(folder, work)
    _pretrain(work)
    shutil.move(work / "checkpoint_last.pt", folder / "model.pt")
    shutil.rmtree(work)
    return folder


def settings(workspace: Path, arch: Path | str, task: str = "sst-2", **given: object) -> FinetuneSettings:
    """Settings of finetune for a small RoBERTa: ten epochs, above its recipe's defaults."""
    given = {"arch": str(arch), "task": task, "max_epochs": 10, "batch_size": 8, "lr": 0.02, **given}
    given |= {"workspace": workspace, "cpu": True, "loadbar": False, "seed": tiny.SEED}
    return FinetuneSettings(**{**defaults_for(given), **given})


def finetuned(given: FinetuneSettings, best: Path) -> Path:
    """Fine-tune, and copy fairseq's best checkpoint to `best`. Returns the model folder."""

    def read(path: Path) -> Any:
        if path.name == fairseq_training.BEST:
            shutil.copyfile(path, best)
        return read_model(path)

    with mock.patch.object(fairseq_training, "read_model", read):
        return finetune(given)


def hub(folder: Path, checkpoint: Path | None = None) -> Any:
    """Return fairseq's own interface to a folder's model, or to another checkpoint of its vocabulary with HEAD."""
    load_fairseq("the test")
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaHubInterface, RobertaModel

    architecture, tensors = read_model(checkpoint or folder / "model.pt")
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    task = argparse.Namespace(source_dictionary=dictionary, mask_idx=dictionary.add_symbol("<mask>"))
    model = RobertaModel.build_model(argparse.Namespace(**architecture.model_dump()), task)
    if checkpoint:
        model.register_classification_head(HEAD, num_classes=len(tensors[f"classification_heads.{HEAD}.out_proj.bias"]))
    model.load_state_dict(tensors)
    files = {"gpt2_encoder_json": str(folder / "encoder.json"), "gpt2_vocab_bpe": str(folder / "vocab.bpe")}
    bpe = argparse.Namespace(bpe="gpt2", **files)
    return RobertaHubInterface(argparse.Namespace(bpe=bpe), task, model).eval()


def split_of(*texts: str, labels: list | None = None, kind: Kind = LABELS) -> Split:
    """Return rows of these texts, of label 0 where none is given."""
    known = np.array(labels if labels is not None else [0] * len(texts))
    return Split(list(texts), None, known, np.arange(len(texts)), kind)


def learn_vocabulary(folder: Path) -> None:
    """Byte-level pairs learned from the text, in the format of GPT-2's and fairseq's files."""
    pairs = ByteLevelBPETokenizer()
    pairs.train_from_iterator(TEXT, vocab_size=600, min_frequency=2, show_progress=False)
    pairs.save_model(str(folder))
    (folder / "vocab.json").rename(folder / "encoder.json")
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    counts = collections.Counter(number for line in TEXT for number in pairs.encode(line).ids)
    ranked = sorted(range(pairs.get_vocab_size()), key=lambda number: (-counts[number], number))
    (folder / "dict.txt").write_text("".join(f"{number} {counts[number]}\n" for number in ranked))


def _binarize(folder: Path, work: Path) -> None:
    """The text as fairseq's masked_lm task reads it; one line in twenty checks the loss."""
    load_fairseq("the test")
    from fairseq.data import Dictionary, indexed_dataset
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    pairs = get_encoder(folder / "encoder.json", folder / "vocab.bpe")
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    shutil.copyfile(folder / "dict.txt", work / "dict.txt")
    for split, lines in (("train", TEXT), ("valid", TEXT[::20])):
        builder = indexed_dataset.make_builder(str(work / f"{split}.bin"), "mmap", vocab_size=len(dictionary))
        for line in lines:
            builder.add_item(dictionary.encode_line(" ".join(map(str, pairs.encode(line))), add_if_not_exist=False))
        builder.finalize(str(work / f"{split}.idx"))


def _pretrain(work: Path) -> None:
    """fairseq's own masked-language-model training."""
    from fairseq import checkpoint_utils, options
    from fairseq_cli.train import main

    # Blocks of a fixed length, because breaking at sentences fails in fairseq 0.12 with NumPy 2.
    flags = f"""
        --task masked_lm --criterion masked_lm --arch roberta --sample-break-mode none --tokens-per-sample 128
        --max-positions 128 --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 64
        --encoder-attention-heads 2 --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6
        --lr-scheduler polynomial_decay --lr 0.001 --warmup-updates 4
        --total-num-update 40 --max-update 40 --batch-size 16 --required-batch-size-multiple 1
        --clip-norm 0.0 --weight-decay 0.01
        --seed 7 --num-workers 0 --no-epoch-checkpoints --save-dir {work} --log-format none --cpu
    """
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # kept from an earlier run in this process
    with quiet():
        main(options.parse_args_and_arch(options.get_training_parser(), [str(work), *flags.split()]))


def write_old_format(folder: Path, target: Path) -> Path:
    """The same model as fairseq's official archives have it: 'args', and the names of 2019."""
    from fairseq.checkpoint_utils import torch_persistent_save

    shutil.copytree(folder, target)
    state = load_checkpoint(folder / "model.pt")
    model = {name.replace("encoder.", "decoder.", 1): tensor for name, tensor in state["model"].items()}
    model = {name.replace("layernorm_embedding", "emb_layer_norm"): tensor for name, tensor in model.items()}
    kept = {key: state[key] for key in ("optimizer_history", "extra_state")}
    args = argparse.Namespace(**vars(state["cfg"]["model"]))
    torch_persistent_save({"args": args, "model": model, **kept}, str(target / "model.pt"))
    return target
