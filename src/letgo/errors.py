"""The one kind of error that a user meets: one line, what was wrong, where, what to do next."""

from collections.abc import Iterable


class LetgoError(ValueError):
    """Bad input. The command line prints its message and exits with code 2."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> LetgoError:
    """The error for a name that does not exist; it suggests the nearest known name, if one is near."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name.lower(), names, 1, 0.6 if len(name) > 3 else 0.7)  # 'gpu' is not 'cpu'
    suggestion = f"did you mean {near[0]}? " if near else ""
    return LetgoError(f"unknown {kind} '{name}'; {suggestion}{hint or 'choose one of ' + ', '.join(names)}")
