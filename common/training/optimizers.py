"""PyTorch's optimizers without its compiler, which they load at their first step, for seconds in every training."""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.cache
def eager(cls: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return an equivalent optimizer class without the hooks that torch.compile puts around its methods.

    The hooks are wrappers that import torch._dynamo when they are called, compiled or not.
    """
    hooked = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, Any] = {name: getattr(getattr(cls, name), "__wrapped__", getattr(cls, name)) for name in hooked}
    methods["step"] = torch.no_grad()(getattr(cls.step, "__wrapped__", cls.step))
    return type(cls.__name__, (cls,), methods)
