"""fairseq's checkpoints of RoBERTas: weights and architecture.

A checkpoint (model.pt) is a pickle, and a pickle can carry code. It is read by PyTorch's weights-only loader, which
builds only tensors, plain containers and the few types named below; anything else is refused.
"""

import argparse
import collections
import contextlib
import pickle
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from common.config import Settings, build
from common.errors import UserError

CHECKPOINT_FILE = "model.pt"


class Architecture(Settings):
    """Settings of a RoBERTa; fairseq's names and defaults (those of roberta_base)."""

    encoder_layers: int = 12
    encoder_embed_dim: int = 768
    encoder_ffn_embed_dim: int = 3072
    encoder_attention_heads: int = 12
    max_positions: int = 512
    activation_fn: Literal["gelu", "gelu_accurate", "relu", "tanh"] = "gelu"


@contextlib.contextmanager
def allowed_types() -> Iterator[None]:
    """Let torch.load(weights_only=True), PyTorch's default, build the types of fairseq's checkpoints."""
    from omegaconf import DictConfig, ListConfig, base, nodes

    settings = [argparse.Namespace, DictConfig, ListConfig, base.Metadata, base.ContainerMetadata, nodes.AnyNode]
    containers = [collections.OrderedDict, collections.defaultdict, dict, list, int, typing.Any]
    numbers = [np.dtype, np._core.multiarray.scalar, *(type(np.dtype(kind)) for kind in "?ilfd")]
    # Checkpoints written before NumPy 2 use the old name of its scalars.
    old_names = [(np._core.multiarray.scalar, "numpy.core.multiarray.scalar")]
    types = [*settings, *containers, *numbers, *old_names]
    known = torch.serialization.get_safe_globals()  # leaving the context removes them, also for outer contexts
    with torch.serialization.safe_globals([kind for kind in types if kind not in known]):
        yield


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return the contents of a fairseq checkpoint, tensors on the CPU.

    Raises UserError when it is missing or damaged, or names a type that is not allowed; no code in it runs.
    """
    try:
        with allowed_types():
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is None:
            raise UserError(f"{path}: refused, the weights-only loader cannot read it") from error
        raise UserError(f"{path}: refused, it holds more than weights and settings ({refused[1]})") from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: damaged or unreadable checkpoint ({type(error).__name__})") from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path}: not a fairseq checkpoint")
    return state


def read_model(path: Path) -> tuple[Architecture, dict[str, torch.Tensor]]:
    """Return architecture and weights of a fairseq checkpoint, old ('args') or new ('cfg'), with current names.

    Raises UserError when it is not of a RoBERTa.
    """
    state = load_checkpoint(path)
    saved = state.get("args") or (state.get("cfg") or {}).get("model")
    saved = vars(saved) if isinstance(saved, argparse.Namespace) else saved
    settings = dict(saved) if isinstance(saved, Mapping) else {}
    if not str(settings.get("arch", settings.get("_name", ""))).startswith("roberta"):
        raise UserError(f"{path}: not a RoBERTa model (fairseq architecture {settings.get('arch', 'unknown')})")
    if settings.get("max_positions") is None and settings.get("tokens_per_sample"):
        settings["max_positions"] = settings["tokens_per_sample"]  # as RobertaModel.build_model does
    known = {name: settings[name] for name in Architecture.model_fields if settings.get(name) is not None}
    try:
        architecture = build(Architecture, known)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    # The official archives have the names of 2019.
    current = {
        re.sub(r"^decoder\.", "encoder.", name).replace(".emb_layer_norm.", ".layernorm_embedding."): tensor
        for name, tensor in state["model"].items()
        if torch.is_tensor(tensor)
    }
    return architecture, current


def load_into(
    model: torch.nn.Module, tensors: dict[str, torch.Tensor], optional: tuple[str, ...], source: Path
) -> None:
    """Put weights into a model. Parts named in `optional`, such as "lm_head", may be missing in it or in `tensors`.

    Names, shapes and number must be the model's. Raises UserError naming the first tensor that differs.
    """
    expected = model.state_dict()
    for name in sorted({*expected, *tensors}):
        if name in expected and name in tensors:
            shape, needed = list(tensors[name].shape), list(expected[name].shape)
            fault = f"has shape {shape}, not {needed}" if shape != needed else ""
        elif not set(optional).isdisjoint(name.split(".")):
            fault = ""
        elif name in tensors:
            fault = "is not part of it"
        else:
            fault = "" if name.endswith(".version") else "is missing"
        if fault:
            raise UserError(f"{source}: not a RoBERTa of this architecture: {name} {fault}")
    model.load_state_dict({**expected, **{name: tensors[name] for name in expected if name in tensors}})
