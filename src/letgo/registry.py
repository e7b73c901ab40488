"""Things by name. A table's entry is a factory, or its place as 'module:name', imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from letgo.errors import unknown

Entry = str | Callable[..., Any]


def resolve(entry: Entry) -> Callable[..., Any]:
    """Return what an entry stands for."""
    if not isinstance(entry, str):
        return entry
    module, _, name = entry.partition(":")
    return getattr(import_module(module), name)


def choose(kind: str, table: Mapping[str, Entry], name: str) -> Callable[..., Any]:
    """Return the factory of that name; an unknown name is refused with the nearest one."""
    if name not in table:
        raise unknown(kind, name, table)
    return resolve(table[name])
