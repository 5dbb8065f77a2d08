"""Encoders and their tokenizers as Hugging Face saves them: found, loaded, and checked to be whole."""

import contextlib
import dataclasses
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from common.errors import UserError, first_line
from common.installed import install
from common.store.files import folder_name
from common.teachers.packages import minilm, mpnet
from common.training.models import WEIGHTS_FILE

SUBFOLDER = "huggingface"
_SECONDS = 10
"""Time after which a hub that does not answer cannot be reached."""
_OLDEST = 5, 5
"""The first version of transformers that runs no code named in config.json (CVE-2026-4372, CVE-2026-5241)."""
_NAMED = 4
"""How many tensors a message names."""


def resolve(arch: str, downloads: Path | None = None) -> tuple[str, str]:
    """Return (folder or hub name for transformers, short name) of an --arch: minilm, mpnet, a folder, or a hub name.

    downloads: folder to unpack mpnet in; None if the encoder was resolved before. Raises UserError when the packages of
    minilm or mpnet are not installed, a folder does not hold a model, or a hub name was not downloaded before and the
    hub cannot be reached.
    """
    if arch == "minilm":
        return str(minilm()), arch
    if arch == "mpnet" and downloads:
        return str(mpnet(downloads)), arch
    folder = Path(arch)
    if folder.is_dir():
        source = folder / SUBFOLDER if (folder / SUBFOLDER).is_dir() else folder
        if not (source / "config.json").exists():
            raise UserError(
                f"--arch {arch}: contains no model: neither Hugging Face's config.json nor fairseq's model.pt"
            )
        return str(source), folder_name(folder)
    if arch.startswith((".", "/", "~")):
        raise UserError(f"--arch {arch}: no such folder")
    if downloads:
        _check_hub(arch)
    return arch, arch.rsplit("/", 1)[-1]


def _check_hub(name: str) -> None:
    """Raise UserError if a model is not in the hub's cache and the hub cannot be reached.

    The hub's own client would retry for a minute.
    """
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        with urllib.request.urlopen(constants.ENDPOINT, timeout=_SECONDS):
            pass
    except HFValidationError as error:
        raise UserError(f"no encoder {name}: {first_line(error)}") from error
    except urllib.error.HTTPError:
        pass  # it answers
    except OSError as error:
        raise UserError(
            f"no encoder {name}: it is not a folder, was not downloaded before, and {constants.ENDPOINT} cannot be "
            f"reached ({first_line(error)})"
        ) from error


def load_pretrained(
    source: str | Path,
    head: str,
    what: str = "teacher",
    new_head: bool = False,
    tokenizer_settings: dict[str, Any] | None = None,
    settings: Path | None = None,
    **changes: Any,
) -> tuple[Any, Any, list[str]]:
    """Return tokenizer and model (float32) of a folder or hub name, and the sorted names of the model's new tensors.

    New tensors are those that the files lack, such as those of an untrained head, and with `new_head` those of a head
    whose shape differs. head: a class of transformers; settings: folder of the tokenizer and config.json, if not
    `source`; changes: to config.json. Weights are safetensors, never pickles, and code that comes with a model is
    never executed. Raises UserError that names `what`, the tensors whose shape differs from config.json, or a pickle.
    """
    _refuse_pickles(Path(source))
    transformers = quiet_transformers()
    try:
        files = {"pretrained_model_name_or_path": settings or source, "trust_remote_code": False}  # None would ask
        tokenizer = transformers.AutoTokenizer.from_pretrained(**files, **(tokenizer_settings or {}))
        config = transformers.AutoConfig.from_pretrained(**files, **changes)
        # A name of the hub in config.json would be fetched and run if the package kernels is installed.
        config._attn_implementation = None
        model, loaded = getattr(transformers, head).from_pretrained(
            source,
            config=config,
            trust_remote_code=False,
            dtype=torch.float32,  # by default it is that of the file
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are checked below
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises OSError, ValueError, SafetensorError and more for bad folders
        raise UserError(f"no {what} could be loaded from {source}: {first_line(error)}") from error
    shapes = {name: (list(theirs), list(expected)) for name, theirs, expected in loaded["mismatched_keys"]}
    wrong = [
        f"{name} has shape {theirs}, not {expected}"
        for name, (theirs, expected) in sorted(shapes.items())
        if not (new_head and _is_head(model, name))
    ]
    if wrong:
        raise UserError(f"{source}: its weights do not fit its config.json: {listed(wrong)}")
    # A tied weight is not missing: it is the same tensor as another.
    return tokenizer, model, sorted((loaded["missing_keys"] | shapes.keys()) - set(model._tied_weights_keys or ()))


@contextlib.contextmanager
def files_below(folder: Path) -> Iterator[Path]:
    """Yield the folder of transformers' files in a model folder. Raises OSError if one cannot be written."""
    try:
        yield folder / SUBFOLDER
    except Exception as error:
        if type(error) not in (Exception, SafetensorError):
            raise
        raise OSError(None, str(error), str(folder)) from error  # tokenizers and safetensors: a full disk, most likely


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write weights (safetensors), config.json and tokenizer below a model folder. Raises OSError."""
    with files_below(folder) as files:
        tokenizer.save_pretrained(files)
        model.save_pretrained(files)
    (files / WEIGHTS_FILE).chmod(0o644)  # safetensors lets only the owner read


def check_complete(source: str | Path, model: Any, new: Sequence[str], new_head: bool = True) -> None:
    """Raise UserError if the files lack tensors of the encoder or, with new_head=False, of the head.

    model, new: as `load_pretrained` returns them. A pooler, a layer between encoder and head that masked language
    models do not have, counts as part of the head.
    """
    lacking = [name for name in new if not (new_head and _is_head(model, name))]
    if lacking:
        raise UserError(f"{source}: its weights lack {listed(lacking)}")


def in_encoder(model: Any, name: str) -> bool:
    """Return whether a tensor belongs to the encoder of a transformers model, and not to its head."""
    return model.base_model is model or name.startswith(f"{model.base_model_prefix}.")


def _is_head(model: Any, name: str) -> bool:
    # The pooler is below the head, and only some encoders come with it.
    return not in_encoder(model, name) or "pooler" in name.split(".")


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _refuse_pickles(folder: Path) -> None:
    """Raise UserError, with the command that converts them, for a folder whose weights are pickled alone."""
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    if not pickles or list(folder.glob("*.safetensors")):
        return
    files, target = str(folder / "pytorch_model*.bin"), str(folder / WEIGHTS_FILE)
    tensors = f"for f in glob({files!r}) for k, v in torch.load(f, weights_only=True).items()"
    code = (
        "import torch; from glob import glob; from safetensors.torch import save_file; "
        f"save_file({{k: v.contiguous().clone() {tensors}}}, {target!r}, {{'format': 'pt'}})"
    )
    raise UserError(f'{pickles[0]}: a pickle can contain code and is not read; convert the weights: python -c "{code}"')


def most_tokens(model: Any) -> int | None:
    """Return the number of tokens that a model has positions for, or None if unknown; RoBERTa's begin after padding."""
    longest = getattr(model.config, "max_position_embeddings", None)
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return longest if longest is None or padding is None else longest - padding - 1


def within_positions(max_tokens: int, model: Any) -> int:
    """Return max_tokens, or the number of tokens that a model has positions for, if that is less.

    Relative positions, such as DeBERTa's, have no limit.
    """
    positions = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    return max_tokens if positions is None else min(max_tokens, most_tokens(model) or max_tokens)


def quiet_transformers() -> Any:
    """Return transformers, imported here because it is large, without its bars and warnings, and without the hub's.

    Raises UserError for a version that runs code which the config.json of a model names.
    """
    import huggingface_hub
    import transformers

    if tuple(map(int, transformers.__version__.split(".")[:2])) < _OLDEST:
        raise UserError(
            f"transformers {transformers.__version__} can run code that a model's config.json names; "
            f"{_OLDEST[0]}.{_OLDEST[1]} or newer is needed; run: {install('train')}"
        )
    huggingface_hub.utils.logging.set_verbosity_error()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


@dataclasses.dataclass(frozen=True)
class GeneralTeacher:
    """A teacher without a task: a pre-trained encoder.

    model: with a masked-language-modelling head if `has_head`, else without a head; tokenizer: contents of
    tokenizer.json.
    """

    name: str
    model: Any
    tokenizer: dict[str, Any]
    has_head: bool


def load_general(source: str, downloads: Path | None = None) -> GeneralTeacher:
    """Return minilm, mpnet, a folder or a model of the hub, in float32. downloads: folder to unpack mpnet in.

    Raises UserError if it cannot be loaded.
    """
    folder, name = resolve(source, downloads)
    tokenizer, model, missing = load_pretrained(folder, "AutoModelForMaskedLM")
    if missing:
        _, model, new = load_pretrained(folder, "AutoModel")
        check_complete(source, model, new)
    if not tokenizer.is_fast:
        raise UserError(f"{source}: its tokenizer has no tokenizer.json, which students need for word pieces")
    return GeneralTeacher(name, model, json.loads(tokenizer.backend_tokenizer.to_str()), not missing)
