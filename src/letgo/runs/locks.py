"""Folders that one process at a time works in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from letgo.errors import LetgoError


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Keep others out of a folder, where the system can; without `wait`, a folder in use is refused at once."""
    new, handle = not folder.exists(), None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise LetgoError(f"{folder}: {error.strerror or error}; choose another folder") from None
    try:
        if handle is not None and not take(handle, wait):
            raise LetgoError(
                f"another process is training or tuning in {folder}; wait until it ends, or choose another --out"
            )
        yield
    finally:
        if new:  # what is refused leaves no empty folder
            with suppress(OSError):
                folder.rmdir()
        if handle is not None:
            os.close(handle)


@contextmanager
def all_locked(folders: Iterable[Path]) -> Iterator[None]:
    """Lock several at once, or none of them where one is in use; one folder twice is in use."""
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(locked(folder, wait=False))
        yield


def take(handle: int, wait: bool = False) -> bool:
    """Lock an open file or folder until it is closed, at the latest when the process ends; False where others have it.

    Where nothing can be locked, on Windows and some network disks, everybody may go on.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True
