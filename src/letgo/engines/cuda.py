"""The compiler that comes with torch compiles the CUDA source beside this file at first use."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch

MOST_BUILDS = 256  # of one function in one process
captures = 0  # CUDA graphs that this process has captured so far


@cache
def available() -> bool:
    """Say whether there is a Hopper card (the kernels use its wgmma) and a torch that can compile CUDA source here."""
    if not torch.cuda.is_available() or torch.version.hip is not None or torch.cuda.get_device_capability() != (9, 0):
        return False
    try:
        torch.cuda._compile_kernel('extern "C" __global__ void probe() {}', "probe")
    except Exception as error:  # an older torch, or no compiler library beside it
        warnings.warn(f"letgo's fused kernels are not used: {type(error).__name__}: {error}", stacklevel=2)
        return False
    return True


def captured(work: Callable[[], None], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Capture `work` as a CUDA graph. Collecting garbage that holds another graph would end the capture."""
    global captures
    captures += 1
    gc.collect()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            work()
    finally:
        gc.enable()
    return graph


def many_builds() -> AbstractContextManager[Any]:
    """torch.compile leaves a function alone after 8 builds unless told: every trainer, rule and shape needs its own."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:  # nothing is compiled in this process
        return nullcontext()
    return dynamo.config.patch(recompile_limit=MOST_BUILDS, accumulated_recompile_limit=MOST_BUILDS)


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


# One name must be asked for; all kernels of the file are made.
FIRST = {"attention.cu": "attention_forward", "blocks.cu": "mlp_forward", "weights.cu": "weight_gradients"}


def source(file: str) -> str:
    """Return a kernel file's text behind what it shares with the others."""
    parts = ["warp.cuh", "hopper.cuh", *([] if file == "attention.cu" else ["layout.cuh"]), file]
    return "\n".join((Path(__file__).parent / part).read_text(encoding="utf-8") for part in parts)


def cache_on_disk(name: str, make: Callable[[], bytes]) -> bytes:
    """Return what `make` returned the first time on this machine. A folder that cannot be used is no reason to stop."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "letgo"
    except RuntimeError:  # a user without a home
        return make()
    try:
        return (folder / name).read_bytes()
    except OSError:
        content = make()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with NamedTemporaryFile(dir=folder, delete=False) as part:  # another process may be at it too
            part.write(content)
        Path(part.name).replace(folder / name)
    except OSError:
        pass
    return content


@cache
def _module(file: str, **defines: int) -> Any:
    from torch.cuda import _utils

    options, text = [f"-D{key}={value}" for key, value in defines.items()], source(file)
    key = sha256("\n".join([text, *options, torch.__version__, str(torch.version.cuda)]).encode()).hexdigest()[:32]
    binary = cache_on_disk(
        f"{key}.kernel", lambda: _utils._nvrtc_compile(text, FIRST[file], "90a", nvcc_options=options)[0]
    )
    return _utils._cuda_load_module(binary)


@cache
def kernel(file: str, name: str, shared: int, **defines: int) -> Any:
    """Return the kernel `name` of `file` with these macros defined, allowed `shared` bytes of shared memory."""
    function = getattr(_module(file, **defines), name)
    function.set_shared_memory_config(shared)

    def launch(grid: tuple[int, ...], threads: int, *arguments: torch.Tensor | int) -> None:
        function((*grid, 1, 1)[:3], (threads, 1, 1), list(arguments), shared_mem=shared)

    return launch
