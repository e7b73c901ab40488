"""Where instances come from (`source_of`), and readers and writers of data files."""

from letgo.data.source import Source, load_problems, source_of

__all__ = ["Source", "load_problems", "source_of"]
