"""Nearly valid inputs: something valid, of which a few places are changed in the ways in which files go wrong."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("LETGO_FUZZ", "0"))  # of each test; the suite itself takes few, the same ones every time
Draw = Callable[[st.SearchStrategy[Any]], Any]
T = TypeVar("T", str, bytes)

STRANGE = [
    *"\x00\t\n\r\v\x1c\x85\u2028 .,;:|/#-+=_*?\"'0o129aAzSG²１ßıſ│═─€\U0001f600\udc80\ufeff",
    "\r\n",
    "nan",
    "1e9",
]
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**53 + 1, 2**63, 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf"),
    "", "x", "em", "0/1", "0/999999999", "²", "\x00", "\udc80", "../..", "diverged", "0" * 5000,
    [], [1], [[]], [[1, 0]], [["diverged"]], {}, {"x": 1}, {"n": 1}, {"kind": "rate", "values": [[]]},
]  # fmt: skip
DTYPES = ["u1", "?", "i8", "u8", "f2", "f8", "c16", "U3", "S2", "M8[s]", "m8[D]", "V4", "f4,i2", ">i4"]
SHAPES = [(), (0,), (3,), (0, 16), (16, 0), (3, 16), (1, 15), (3, 4, 4), (3, 0, 4), (3, 5, 5), (1, 2, 3, 4)]


def fuzz(examples: int) -> settings:
    """Of the suite: few examples, always the same. With LETGO_FUZZ=N: N new ones, each within five seconds."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=5000 if EXAMPLES else None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink] if EXAMPLES else [Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


def _edited(draw: Draw, whole: T, piece: st.SearchStrategy[T]) -> T:
    """A span is cut out, doubled, moved to the end, or replaced by something else."""
    start = draw(st.integers(0, len(whole)))
    end = min(len(whole), start + draw(st.sampled_from([0, 1, 1, 1, 2, 9, 64, len(whole)])))
    before, span, after = whole[:start], whole[start:end], whole[end:]
    kind = draw(st.sampled_from(["replace", "replace", "cut", "double", "move", "short"]))
    if kind == "replace":
        return before + draw(piece) + after
    return {"cut": before + after, "double": before + span + span + after, "move": before + after + span}.get(
        kind, before
    )


@st.composite
def near_text(draw: Draw, whole: st.SearchStrategy[str], most: int = 3) -> str:
    """A text with a few edits of characters or of whole lines; perhaps with none."""
    text = draw(whole)
    alphabet = sorted(set(text)) + STRANGE
    own = sorted(set(text)) or STRANGE
    for _ in range(draw(st.integers(0, most))):
        if text and draw(st.booleans()):  # as long as before
            at = draw(st.integers(0, len(text) - 1))
            text = text[:at] + draw(st.sampled_from(own)) + text[at + 1 :]
        elif "\n" in text and draw(st.booleans()):
            lines = text.splitlines(keepends=True)
            at = draw(st.integers(0, len(lines) - 1))
            lines[at : at + 1] = draw(st.sampled_from([[], [lines[at]] * 2, ["\n"], [lines[-1]], ["---+---\n"]]))
            text = "".join(lines)
        else:
            text = _edited(draw, text, st.lists(st.sampled_from(alphabet), max_size=3).map("".join))
    return text


@st.composite
def near_bytes(draw: Draw, whole: bytes, most: int = 3) -> bytes:
    """A file with a few bits turned, or bytes cut, doubled, moved or replaced."""
    data = whole
    for _ in range(draw(st.integers(0, most))):
        if data and draw(st.booleans()):
            at, bit = draw(st.integers(0, len(data) - 1)), draw(st.integers(0, 7))
            data = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        else:
            data = _edited(draw, data, st.binary(max_size=8))
    return data


@st.composite
def near_tree(draw: Draw, tree: Any, odd: tuple[Any, ...] = tuple(ODD)) -> Any:
    """Nested dictionaries and lists of which one value is replaced, or one key is renamed, removed or added."""
    inner = isinstance(tree, dict | list) and len(tree) > 0
    if not inner or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(odd))
    key = draw(st.sampled_from([*tree] if isinstance(tree, dict) else range(len(tree))))
    kind = draw(st.sampled_from(["into", "into", "into", "into", "remove", "add"]))
    if isinstance(tree, list):
        changed = {"remove": [], "add": [tree[key]] * 2}
        return [
            *tree[:key],
            *(changed.get(kind) or [draw(near_tree(tree[key], odd))] * (kind == "into")),
            *tree[key + 1 :],
        ]
    if kind == "add":
        return {**tree, draw(st.sampled_from(["zz", "", "\udc80", "n"])): draw(st.sampled_from(odd))}
    rest = {name: value for name, value in tree.items() if name != key}
    return rest if kind == "remove" else {**tree, key: draw(near_tree(tree[key], odd))}


@st.composite
def near_json(draw: Draw, tree: Any) -> bytes:
    """JSON whose values have other types, fewer or more keys; rarely text that is no JSON."""
    for _ in range(draw(st.integers(0, 2))):
        tree = draw(near_tree(tree))
    text = json.dumps(tree)
    if draw(st.integers(0, 7)) == 0:
        text = draw(near_text(st.just(text)))
    return text.encode(errors="surrogatepass")


@st.composite
def near_array(draw: Draw, array: np.ndarray) -> np.ndarray:
    """An array of another type or shape, or with one entry changed."""
    kind = draw(st.sampled_from(["entry", "zeros", "flat", "short", "type", "wild"]))
    if kind == "zeros":
        return np.zeros(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES)))
    if kind == "wild":
        return np.full(array.shape, draw(st.sampled_from([np.nan, np.inf, -1.0, 300.0, 1e30, 2.5])))
    if kind == "type" and array.dtype.kind in "bu":
        return array.astype(draw(st.sampled_from(["u1", "i8", "f4", "f8", "U3", ">i4", "?"])))
    if kind == "entry" and array.size and array.dtype.kind in "bu":
        changed = array.copy()
        changed.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from([0, 1, 2, 255]))
        return changed
    return array.reshape(-1) if kind == "flat" else array[: len(array) - 1] if array.ndim else array


@st.composite
def near_npz(draw: Draw, arrays: dict[str, np.ndarray], texts: st.SearchStrategy[bytes]) -> bytes:
    """An archive one of whose arrays is changed, missing, doubled, packed otherwise, or has a damaged header."""
    changed, whole = dict(arrays), io.BytesIO()
    name = draw(st.sampled_from([*arrays]))
    kind = draw(st.sampled_from(["array", "array", "text", "remove", "header", "bytes"]))
    if kind == "array":
        changed[name] = draw(near_array(arrays[name]))
    elif kind == "text":
        changed["meta"] = np.array(draw(texts).decode(errors="surrogatepass"))
    elif kind == "remove":
        del changed[name]
    packing = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]))
    with zipfile.ZipFile(whole, "w", packing) as archive:
        for each, array in changed.items():
            entry = io.BytesIO()
            np.save(entry, array)
            data = entry.getvalue()
            if kind == "header" and each == name:
                data = draw(near_bytes(data[:120])) + data[120:]
            archive.writestr(f"{each}.npy", data)
    return draw(near_bytes(whole.getvalue())) if kind == "bytes" else whole.getvalue()


TENSORS = (
    *ODD, torch.zeros(2), torch.zeros(3, dtype=torch.int64), torch.tensor(float("nan")), torch.zeros(2, 2).T,
    torch.zeros(0), torch.zeros(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.float16),
)  # fmt: skip


@st.composite
def near_state(draw: Draw, state: dict[str, Any]) -> bytes:
    """A state of training with another value somewhere, or another byte."""
    stream = io.BytesIO()
    changed = draw(st.booleans())
    torch.save(draw(near_tree(state, TENSORS)) if changed else state, stream)
    return stream.getvalue() if changed else draw(near_bytes(stream.getvalue()))


@st.composite
def near_weights(draw: Draw, whole: bytes) -> bytes:
    """Safetensors with other bytes, or with another header that is well formed."""
    if draw(st.booleans()):
        return draw(near_bytes(whole))
    start = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:start])
    if draw(st.booleans()):
        del header["__metadata__"]
    if draw(st.booleans()):
        name = draw(st.sampled_from([name for name in header if name != "__metadata__"]))
        kinds = ["F32", "I32", "U32", "F16", "BOOL", "C64", "F8_E4M3", "F4", "X"]
        header[name] = {**header[name], "dtype": draw(st.sampled_from(kinds))}
    else:
        header = draw(near_tree(header))
    data = json.dumps(header).encode(errors="surrogatepass")
    return len(data).to_bytes(8, "little") + data + whole[start:]


@st.composite
def written_grids(draw: Draw, cells: str, side: int) -> str:
    """A puzzle as people write it: a grid of lines with one of the blanks, separators, borders and comments."""
    blank, separator = (
        draw(st.sampled_from(".0_*x")),
        draw(st.sampled_from(["", " ", ",", "|", " | ", "\t", "; ", "│", "║"])),
    )
    border = draw(st.sampled_from(["", "-" * 5, "+---+---+", "├───┼───┤", "=" * 9, "|   |   |"]))
    end, frame = draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["", "|", "│ ", " "]))
    comment = draw(st.sampled_from(["", "  # a row", "# 12"]))
    lines = []
    for row in (cells[i : i + side] for i in range(0, len(cells), side)):
        lines += [border] * draw(st.integers(0, 1)) * bool(border)
        lines.append(frame + separator.join(row.replace(".", blank)) + frame[::-1] + comment)
    return end.join(lines) + end
