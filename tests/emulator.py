"""The kernels on a CPU: their source behind emulator.h, through the host's C++ compiler, in place of `cuda.kernel`."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from torch import Tensor

from letgo.engines import cuda

MOST_SHARED = 232_448  # bytes that a block may have on the card
FUNCTION = re.compile(r"^(?:template <[^\n]*>\n)?__device__ [^\n]*(?:\{\n.*?^\}|\})\n", re.M | re.S)
KERNEL = re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\([^\n]*?\) )?(\w+)\((.*?)\) \{\n', re.M | re.S)
emulated = pytest.param("cpu", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"))
hopper = pytest.param("cuda", marks=pytest.mark.skipif(not cuda.available(), reason="needs a Hopper GPU"))


def emulation(file: str, **numbers: int) -> str:
    """A kernel file for a CPU: functions of inline assembly come from emulator.h instead."""
    source = FUNCTION.sub(lambda found: "" if "asm" in found[0] else found[0], cuda.source(file))
    assert not re.search(r"\basm\b", source)
    source = source.replace("extern __shared__", "extern")  # the one array, which emulator.h has
    lines = [
        *(f"#define {name} {value}" for name, value in numbers.items()),
        f'#include "{Path(__file__).with_suffix(".h")}"',
        source,
    ]
    for name, parameters in KERNEL.findall(source):
        values = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        lines.append(f'extern "C" const char* emulate_{name}(const int* grid, int threads, int bytes, {parameters}) {{')
        call = f"[=] {{ {name}({values}); }}"
        lines.append(f"    return launch({{grid[0], grid[1], grid[2]}}, threads, bytes, {call});\n}}")
    return "\n".join(lines)


@cache
def library(file: str, **numbers: int) -> ctypes.CDLL:
    with TemporaryDirectory() as folder:  # a library that is loaded needs its file no more
        source, made = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text(emulation(file, **numbers))
        options = ["-O1", "-w", "-std=c++17", "-fno-strict-aliasing", "-shared", "-fPIC", "-o", str(made)]
        subprocess.run(["g++", *options, str(source)], check=True)
        return ctypes.CDLL(str(made))


def kernel(file: str, name: str, shared: int, **numbers: int) -> Callable[..., None]:
    """`cuda.kernel`, emulated."""
    assert shared <= MOST_SHARED
    function = getattr(library(file, **numbers), f"emulate_{name}")
    function.restype = ctypes.c_char_p

    def launch(grid: tuple[int, ...], threads: int, *arguments: Tensor | int) -> None:
        words = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else ctypes.c_int(a) for a in arguments]
        fault = function((ctypes.c_int * 3)(*(*grid, 1, 1)[:3]), threads, shared, *words)
        assert fault is None, f"{name}: {fault.decode()}"

    return launch
