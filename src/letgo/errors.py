"""The one kind of error that a user meets: one line, what was wrong, where, what to do next."""

import operator
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

MOST = 1500  # characters of a message
LONG = 200  # characters of a list that is left out where a name is near
# What telling and drawing a damaged report ends in.
DAMAGED = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError, zlib.error)


class LetgoError(ValueError):
    """A LetgoError tells of bad input. The command line prints its message, always one line, and exits with code 2."""

    def __init__(self, text: str):
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        # A name may have thousands of characters; what to do next stands at the end.
        super().__init__(line if len(line) <= MOST else f"{line[: MOST - 305]} ... {line[-300:]}")


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> LetgoError:
    """Return the error for a name that does not exist; it suggests the nearest known name, if one is near."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name.lower(), names, 1, 0.6 if len(name) > 3 else 0.7)  # 'gpu' is not 'cpu'
    listed = hint or "choose one of " + ", ".join(names)
    if near and len(listed) > LONG:
        return LetgoError(f"unknown {kind} '{name}'; did you mean {near[0]}?")
    return LetgoError(f"unknown {kind} '{name}'; {f'did you mean {near[0]}? ' if near else ''}{listed}")


@contextmanager
def blaming(where: object, then: str) -> Iterator[None]:
    """Refuse, by its name, what was read from a file and cannot be told or drawn."""
    try:
        yield
    except LetgoError:
        raise
    except DAMAGED as error:
        raise LetgoError(
            f"{where}: damaged, or of another version ({type(error).__name__}: {error}); {then}"
        ) from error


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return what is counted by whole numbers, from `least` on."""
    try:
        number = operator.index(value)
    except TypeError:
        raise LetgoError(f"{name} must be a whole number, got {value!r}") from None
    if least is not None and number < least:
        raise LetgoError(f"{name} must be at least {least}, got {number}")
    return number
