"""PyTorch's optimizers without its compiler, which they would load at their first step: seconds in every training."""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.cache
def eager(cls: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return an optimizer class that computes the same, without the hooks by which torch.compile sees its methods.

    They are wrappers that import torch._dynamo when they are called, compiled or not.
    """
    hooked = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, Any] = {name: getattr(getattr(cls, name), "__wrapped__", getattr(cls, name)) for name in hooked}
    methods["step"] = torch.no_grad()(getattr(cls.step, "__wrapped__", cls.step))
    return type(cls.__name__, (cls,), methods)
