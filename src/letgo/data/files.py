"""Files in and out: gzip is transparent, a fault is one line, and nothing is ever half written."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from letgo.errors import LetgoError

GZIP_MAGIC = b"\x1f\x8b"
STDIN = "-"

FilePath = str | os.PathLike[str]


def place(path: FilePath, line: int | None = None) -> str:
    """Return how a message names a file and a line of it."""
    name = "standard input" if str(path) == STDIN else str(path)
    return name if line is None else f"{name}, line {line}"


def file_kind(path: FilePath) -> str:
    """Return 'npz', 'npy', 'csv' or 'txt'; .gz may follow."""
    name = str(path).lower().removesuffix(".gz")
    return next((kind for kind in ("npz", "npy", "csv") if name.endswith(f".{kind}")), "txt")


@contextmanager
def _faults_of(path: FilePath) -> Iterator[None]:
    """Turn what the operating system and gzip complain about into one line."""
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


MOST_RATIO, SMALL = 64, 16 << 20  # an archive unpacks to this many times its size, and to so many bytes anyway
MOST_LINE = 1 << 20  # bytes
MOST_EMPTY = 100_000  # lines


def regular_file(path: FilePath, most: int | None = None) -> int:
    """Return the size of a file; a pipe, a device and what is too large is refused before it is read."""
    if "\0" in str(path):
        raise LetgoError(f"{place(path)}: no file has such a name; check the path")
    with _faults_of(path):
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):
        raise LetgoError(f"{place(path)}: not a regular file; save it to one, or pipe puzzles in with '-'")
    if most is not None and status.st_size > most:
        raise LetgoError(f"{place(path)}: {status.st_size:,} bytes, and at most {most:,} are read; name another file")
    return status.st_size


def refuse_bomb(path: FilePath, packed: int, unpacked: int) -> None:
    """Refuse what unpacks to far more than its own size, before it does."""
    if unpacked > SMALL + MOST_RATIO * packed:
        raise LetgoError(
            f"{place(path)}: {packed:,} bytes that unpack to {unpacked:,} or more; unpack it yourself if you trust it"
        )


class _Unpacked(gzip.GzipFile):
    """It is a gzip stream that stops where it becomes a bomb."""

    path: FilePath = ""
    packed = done = 0

    def read(self, size: int | None = -1) -> bytes:
        whole = size is None or size < 0
        return self._count(super().read(SMALL + MOST_RATIO * self.packed + 1 - self.done if whole else size))

    def read1(self, size: int = -1) -> bytes:
        return self._count(super().read1(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._count(super().readline(size))

    def _count(self, data: bytes) -> bytes:
        self.done += len(data)
        refuse_bomb(self.path, self.packed, self.done)
        return data


def lines_of(path: FilePath, stream: Any) -> Iterator[Any]:
    """Yield its lines, none of them endless, and not endlessly many that are empty."""
    empty = 0
    for number in count(1):
        line = stream.readline(MOST_LINE)
        if not line:
            return
        if len(line) == MOST_LINE:
            raise LetgoError(f"{place(path, number)}: longer than {MOST_LINE:,} characters; expected a puzzle per line")
        empty += line.isspace()
        if empty > MOST_EMPTY:
            raise LetgoError(f"{place(path, number)}: more than {MOST_EMPTY:,} empty lines; name another file")
        yield line


@contextmanager
def open_bytes(path: FilePath) -> Iterator[BinaryIO]:
    """Open the bytes of a file ('-': standard input), unpacked if its first two bytes, not its name, say gzip."""
    with _faults_of(path):
        standard = str(path) == STDIN
        if standard and sys.stdin is None:
            raise LetgoError(f"{place(path)} is closed; pipe the puzzles in, or name a file")
        size = 0 if standard else regular_file(path)
        raw = sys.stdin.buffer if standard else Path(path).open("rb")  # noqa: SIM115 (closed below)
        try:
            buffered = cast(io.BufferedReader, raw)
            packed = buffered.peek(2)[:2] == GZIP_MAGIC
            unpacked = _Unpacked(fileobj=buffered) if packed else None
            if unpacked is not None:
                unpacked.path, unpacked.packed = path, size if not standard else sys.maxsize
            yield cast(BinaryIO, unpacked) if unpacked is not None else buffered
        finally:
            if not standard:
                raw.close()


@contextmanager
def open_csv(path: FilePath) -> Iterator[TextIO]:
    """Open text for the csv module: a BOM is dropped, foreign bytes become characters that no column allows."""
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
    """Refuse a file that cannot be written, before the work, not after it."""
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
    """Return whether it is a device, a pipe, our own output: that is written to, where a file would be replaced."""
    return path.exists() and not path.is_dir() and (not path.is_file() or _standard(path) is not None)


def _standard(path: Path) -> TextIO | None:
    """Return the standard stream that this is, by whatever name: what was written there before must stay."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or no file at all
            if os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
    return None


def write_atomically(path: FilePath, content: str | bytes | memoryview) -> None:
    """Write a temporary file in the same folder, which takes the name only when all of it is on the disk."""
    content = content.encode() if isinstance(content, str) else content
    if _is_stream(Path(path)):
        with _faults_of(path):
            _write_through(Path(path), content)
        return
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _faults_of(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:  # Ctrl-C too leaves nothing behind
            temporary.unlink(missing_ok=True)
            raise


def _write_through(path: Path, content: bytes | memoryview) -> None:
    standard = _standard(path)
    if standard is None:
        path.write_bytes(content)
    else:
        standard.flush()
        standard.buffer.write(content)
        standard.buffer.flush()


def _remove_leftovers(target: Path) -> None:
    """Remove what processes began to write here that were killed."""
    for part in target.parent.glob(f".{escape(target.name)}.*.part"):
        writer = part.name.split(".")[-2]
        if writer.isdecimal() and not _runs(int(writer)):
            part.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if os.name != "posix":  # where signal 0 is no question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True
