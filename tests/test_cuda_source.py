"""Every kernel compiles for the card it is meant for; no GPU is needed, only the compiler's library (the dev extra)."""

import ctypes
import importlib.util
from pathlib import Path

import pytest

import letgo.engines.cuda as cuda

FOLDER = Path(cuda.__file__).parent
SHAPES = [(512, 12, 655, 0), (512, 12, 0, 1), (512, 4, 655, 0), (512, 4, 0, 1), (128, 12, 0, 0)]
BLOCKS = [{"HIDDEN": h, "WARPS": w, "BLOCKS": 12 // w, "DROP": drop, "HALF": half} for h, w, drop, half in SHAPES]
VARIANTS = [
    *(("blocks.cu", numbers) for numbers in BLOCKS),
    *(("attention.cu", {"N": cells, "HEADS": 8, "DROP": drop}) for cells, drop in ((14, 0), (81, 655), (900, 655))),
    ("weights.cu", {"HIDDEN": 512}),
]


def library() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return next((lib for folder in folders for lib in Path(folder).glob("**/libnvrtc.so.*")), None)


@pytest.mark.skipif(library() is None, reason="needs nvidia-cuda-nvrtc, part of the dev extra")
@pytest.mark.parametrize(("file", "numbers"), VARIANTS)
def test_a_kernel_file_compiles(file: str, numbers: dict[str, int]):
    nvrtc = ctypes.CDLL(str(library()))
    program = ctypes.c_void_p()
    source = cuda.source(file).encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, file.encode(), 0, None, None) == 0
    options = [b"--gpu-architecture=sm_90a", *(f"-D{name}={value}".encode() for name, value in numbers.items())]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert not failed, log.value.decode()
    assert b"serialized" not in log.value, log.value.decode()  # ptxas says so when products must wait for each other
    assert cuda.FIRST[file] in cuda.source(file)


def test_a_compiled_kernel_is_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cuda.cache_on_disk("a", lambda: b"made") == b"made"
    assert cuda.cache_on_disk("a", lambda: b"made again") == b"made"
    assert [p.name for p in (tmp_path / "letgo").iterdir()] == ["a"]
    (tmp_path / "file").write_text("")  # no folder can be made here
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cuda.cache_on_disk("a", lambda: b"made again") == b"made again"
