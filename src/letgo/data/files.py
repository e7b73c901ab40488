"""Files in and out: gzip is transparent, a fault is one line, and nothing is ever half written."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, TextIO, cast

from letgo.errors import LetgoError

GZIP_MAGIC = b"\x1f\x8b"
STDIN = "-"

FilePath = str | os.PathLike[str]


def place(path: FilePath, line: int | None = None) -> str:
    """How a message names a file and a line of it."""
    name = "standard input" if str(path) == STDIN else str(path)
    return name if line is None else f"{name}, line {line}"


def file_kind(path: FilePath) -> str:
    """'npz', 'csv' or 'txt'; .gz may follow."""
    name = str(path).lower().removesuffix(".gz")
    return next((kind for kind in ("npz", "csv") if name.endswith(f".{kind}")), "txt")


@contextmanager
def _faults_of(path: FilePath) -> Iterator[None]:
    """What the operating system and gzip complain about, as one line."""
    try:
        yield
    except FileNotFoundError:
        raise LetgoError(f"{place(path)}: no such file; check the path") from None
    except IsADirectoryError:
        raise LetgoError(f"{place(path)}: this is a directory; name a file in it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise LetgoError(f"{place(path)}: the gzip stream is cut short or damaged; fetch it again") from None
    except OSError as fault:
        raise LetgoError(f"{place(path)}: {fault.strerror or fault}; check the disk and the permissions") from None


@contextmanager
def open_bytes(path: FilePath) -> Iterator[BinaryIO]:
    """The bytes of a file ('-': standard input), unpacked if its first two bytes, not its name, say gzip."""
    with _faults_of(path):
        standard = str(path) == STDIN
        if standard and sys.stdin is None:
            raise LetgoError(f"{place(path)}: it is closed; pipe the puzzles in, or name a file")
        raw = sys.stdin.buffer if standard else Path(path).open("rb")  # noqa: SIM115 (closed below)
        try:
            buffered = cast(io.BufferedReader, raw)
            packed = buffered.peek(2)[:2] == GZIP_MAGIC
            yield cast(BinaryIO, gzip.GzipFile(fileobj=buffered)) if packed else buffered
        finally:
            if not standard:
                raw.close()


@contextmanager
def open_csv(path: FilePath) -> Iterator[TextIO]:
    """Text for the csv module: a BOM is dropped, foreign bytes become characters that no column allows."""
    with open_bytes(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        try:
            yield text
        finally:
            text.detach()  # the stream belongs to open_bytes


def refuse_to_overwrite(path: FilePath, force: bool) -> None:
    target = Path(path)
    if target.is_dir():
        raise LetgoError(f"{target}: this is a directory; name a file in it")
    if target.exists() and not force:
        raise LetgoError(f"{target}: exists already; pass --force to replace it, or choose another name")


def refuse_unwritable(path: Path | None, option: str = "--out") -> None:
    """Before the work, not after it: a file that cannot be written."""
    if path is None or _is_stream(path):
        return
    if path.is_dir():
        raise LetgoError(f"{option} {path}: this is a directory; name a file in it")
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise LetgoError(f"{option} {path}: a link that leads to itself; name a file")
    folder = next(parent for parent in target.parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):  # permissions alone do not tell, least of all to root
            pass
    except OSError:
        raise LetgoError(f"{option} {path}: {folder} cannot be written to; choose another place") from None


def _is_stream(path: Path) -> bool:
    """A device, a pipe, our own output: it is written to, where a file would be replaced."""
    return path.exists() and not path.is_dir() and (not path.is_file() or _standard(path) is not None)


def _standard(path: Path) -> TextIO | None:
    """The standard stream that this is, by whatever name: what was written there before must stay."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or no file at all
            if os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
    return None


@contextmanager
def _written_through(path: Path) -> Iterator[IO[bytes]]:
    standard = _standard(path)
    if standard is None:
        with path.open("wb") as stream:
            yield stream
    else:
        standard.flush()
        yield standard.buffer
        standard.buffer.flush()


@contextmanager
def written_atomically(path: FilePath) -> Iterator[IO[bytes]]:
    """A temporary file in the same folder, which takes the name only when all of it is on the disk."""
    if _is_stream(Path(path)):
        with _faults_of(path), _written_through(Path(path)) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _faults_of(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:  # Ctrl-C too leaves nothing behind
            temporary.unlink(missing_ok=True)
            raise
