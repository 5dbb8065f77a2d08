"""The device of tensors, the precision of the teacher's arithmetic, and the number of cores and GPUs to use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from common.errors import UserError

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "fp32", "bf16", "fp16"]
"""Arithmetic of a teacher. This module imports torch only where it is used, so that --help is fast."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's CPU quota (cgroup v2): microseconds of CPU time in a period, or max, and the period."""


def cpu_cores() -> int:
    """Return the number of CPU cores this process may use, given its affinity and a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        cores = min(cores, int(quota) // int(period))
    return max(1, cores)


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Let PyTorch, NumPy and SciPy use this number of CPU threads in the block."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits(number):
        torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def gpu_count(cpu: bool) -> int:
    """Return the number of GPUs to use: 0 if `cpu` is set."""
    if cpu:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pick_device(cpu: bool) -> torch.device:
    """Return the GPU if there is one and `cpu` is not set, else the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")


def best_precision(device: torch.device) -> Precision:
    """Return the precision that `auto` means on a device: bf16 where the hardware multiplies it natively, else fp32."""
    return "bf16" if _has_bf16(device) else "fp32"


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype of autocast. bf16 is emulated, slowly, if the hardware lacks it.

    Raises UserError for fp16 on a CPU, which has no fast fp16 arithmetic.
    """
    import torch

    if precision == "fp16" and device.type == "cpu":
        raise UserError("fp16 needs a GPU; give --precision bf16 or fp32")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return dtypes[best_precision(device) if precision == "auto" else precision]


def _has_bf16(device: torch.device) -> bool:
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # oneDNN emulates bf16 on older CPUs, slower than fp32; these are the native instruction sets.
    native = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in native)


def autocast(dtype: torch.dtype, device: torch.device) -> contextlib.AbstractContextManager:
    """Return a context of mixed precision in `dtype`; it does nothing for float32."""
    import torch

    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)
