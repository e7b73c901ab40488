"""The command line: one file per verb, each with its parser (`add`) and its work (`run`)."""

from letgo.cli.main import build_parser, main

__all__ = ["build_parser", "main"]
