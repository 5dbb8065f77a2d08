"""Tensors in safetensors files, never pickles: models' weights, and the state of a training run."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from common.errors import UserError
from common.store.files import whole_file
from common.training.models import base_file, read_config, weights_file


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> None:
    """Write tensors and JSON-able metadata to one file, whole or not at all."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as partial:
        # Written by Python, not by safetensors: a full disk is an OSError, and the file gets the usual permissions.
        partial.write_bytes(save(contiguous, {"json": json.dumps(metadata, sort_keys=True)} if metadata else None))


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return a file's tensors (on the CPU) and metadata. Raises UserError when it is missing or damaged."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = json.loads((file.metadata() or {}).get("json", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (SafetensorError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: damaged or truncated weights ({error})") from error


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a model's weights file and, for a student with adapters, of its general student's.

    Raises UserError if a file is missing or damaged, or if the general student is missing or was replaced.
    """
    base = base_file(folder, read_config(folder))
    of_base = load_tensors(base)[0] if base else {}
    return of_base | load_tensors(weights_file(folder))[0]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimizer's per-parameter state, flattened to names like '3.exp_avg'."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{key}": torch.as_tensor(value) for i, values in state.items() for key, value in values.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Restore the optimizer's state from the tensors of `optimizer_tensors`."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
