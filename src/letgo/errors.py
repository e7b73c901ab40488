"""The one kind of error that a user meets: one line, what was wrong, where, what to do next."""

import argparse
from collections.abc import Callable, Iterable
from typing import NoReturn

MOST_BOARDS = 10**9


class LetgoError(ValueError):
    """Bad input. The command line prints its message and exits with code 2."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are such errors."""

    def error(self, message: str) -> NoReturn:
        raise LetgoError(f"{message}; see `{self.prog} --help`")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number."""

    def whole_number(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least}, got '{text}'")
        return int(text)

    return whole_number


def boards(text: str) -> int:
    """The type of an option that says how many boards to make; all of them lie in memory."""
    count = at_least(1)(text)
    if count > MOST_BOARDS:
        raise argparse.ArgumentTypeError(f"{text} is more than a billion boards, which fit in no memory; ask for fewer")
    return count


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> LetgoError:
    """The error for a name that does not exist; it suggests the nearest known name, if one is near."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name.lower(), names, 1, 0.7)  # at .66 'gpu' would be taken for 'cpu'
    suggestion = f"did you mean {near[0]}? " if near else ""
    return LetgoError(f"unknown {kind} '{name}'; {suggestion}{hint or 'choose one of ' + ', '.join(names)}")
