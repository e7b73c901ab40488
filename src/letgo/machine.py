"""What a machine has: devices, precisions, threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from letgo.errors import LetgoError, unknown

PRECISIONS = ("auto", "fp32", "bf16")


def pick_device(name: str | torch.device) -> torch.device:
    name = str(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in available:
        raise unknown("device", name, ("auto", *available))
    if not available[name]:
        raise LetgoError(f"device '{name}' is not available here; use --device cpu")
    return torch.device(name)


def pick_precision(name: str, device: torch.device, fast: bool, half: bool) -> str:
    """'auto' is bf16 on a GPU, fp32 elsewhere unless `half`."""
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "auto":
        return "bf16" if half or device.type == "cuda" else "fp32"
    if name == "bf16" and (device.type == "mps" or (device.type == "cpu" and not fast)):
        raise LetgoError(f"the plain path on '{device.type}' has fp32 only; choose --precision fp32")
    return name


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Boards are small: a second thread gains a fifth on an idle machine, and doubles the time on a busy one."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
