"""The one kind of error that a user meets: one line, what was wrong, where, what to do next."""


class LetgoError(ValueError):
    """Bad input. The command line prints its message and exits with code 2."""
