"""The one kind of error that a user meets: one line, what was wrong, where, what to do next."""

import argparse
from collections.abc import Callable
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
