"""The one kind of error that a user meets: one line, what was wrong, where, what to do next."""

import argparse
from typing import NoReturn


class LetgoError(ValueError):
    """Bad input. The command line prints its message and exits with code 2."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are such errors."""

    def error(self, message: str) -> NoReturn:
        raise LetgoError(f"{message}; see `{self.prog} --help`")
