"""Values that come from a file, compared with the types that the code gives them: the door of every JSON and state."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from letgo.errors import LetgoError

WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number", NoneType: "null"}


@dataclass(frozen=True)
class Between:
    """Between is the span of a number, both ends included."""

    least: int | float
    most: int | float = math.inf

    def __str__(self) -> str:
        return f"from {self.least:,}" + ("" if math.isinf(self.most) else f" to {self.most:,}")


Count = Annotated[int, Between(1, 2**53)]
Natural = Annotated[int, Between(0, 2**53)]
Positive = Annotated[float, Between(0)]
Share = Annotated[float, Between(0, 1)]


MOST = 1_000_000  # of any number among the options of a task, a codec, a path or a network


def check_options(options: dict[str, Any], build: Any, whose: str) -> dict[str, Any]:
    """Return the options; each must be what the parameter of `build` says, where it says so, and no number is large."""
    try:
        hints = get_type_hints(build.__init__ if isinstance(build, type) else build, include_extras=True)
    except (AttributeError, NameError, TypeError):  # a lambda, or types of one's own
        hints = {}
    known = {name: kind for name, kind in hints.items() if _is_plain(kind)}
    for name, value in options.items():
        fault = _fault(value, known.get(name, Any), name)
        large = isinstance(value, int | float) and name != "seed" and not -MOST <= value <= MOST
        if fault or large:
            raise LetgoError(f"{whose}: {fault or _wrong(value, f'a number up to {MOST:,}', name)}")
    return options


def _is_plain(kind: Any) -> bool:
    """Return whether JSON can hold such a value: a word, a number, or a list of these."""
    parts = get_origin(kind) in (list, Sequence, Union, UnionType)
    return all(map(_is_plain, get_args(kind))) if parts else kind in WORDS


def check(values: Any, kind: Any, whose: str) -> Any:
    """Return the values; the first that is not what its type says is a LetgoError that names its field."""
    fault = _fault(values, kind, "")
    if fault is not None:
        raise LetgoError(f"{whose}: {fault}")
    return values


def _fault(value: Any, kind: Any, name: str) -> str | None:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return None
    if origin is NotRequired:
        return _fault(value, inner[0], name)
    if origin is Annotated:
        outside = isinstance(value, int | float) and not inner[1].least <= value <= inner[1].most
        return _fault(value, inner[0], name) or (_wrong(value, f"a number {inner[1]}", name) if outside else None)
    if origin is Literal:
        return None if value in inner else _wrong(value, f"one of {', '.join(map(str, inner))}", name)
    if origin in (Union, UnionType):
        faults = [_fault(value, each, name) for each in inner]
        return None if None in faults else faults[0]
    if is_typeddict(kind) or is_dataclass(kind):
        return _fault_of_fields(value, kind, name)
    if origin in (dict, list, Sequence):
        if not isinstance(value, dict if origin is dict else list | tuple):
            return _wrong(value, "an object" if origin is dict else "a list", name)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        found = (_fault(each, inner[-1], _path(name, key)) for key, each in items)
        keys = (_wrong(key, "a name", name) for key in value if origin is dict and not isinstance(key, str))
        return next((fault for fault in (*keys, *found) if fault is not None), None)
    whole = isinstance(value, int) and not isinstance(value, bool)
    fits = {bool: isinstance(value, bool), int: whole, float: _finite(value)}.get(kind)
    return None if (isinstance(value, kind) if fits is None else fits) else _wrong(value, WORDS.get(kind), name, kind)


def _fault_of_fields(value: Any, kind: Any, name: str) -> str | None:
    """A dataclass knows all its fields; what a typed dictionary does not know, a later version may have written."""
    if not isinstance(value, dict):
        return _wrong(value, "an object", name)
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        hints = {each.name: hints[each.name] for each in fields(kind)}
        other = [str(key) for key in value if key not in hints]
        if other:
            return f"{name and name + ': '}unknown {', '.join(sorted(other))[:80]}"
        needed = {each.name for each in fields(kind) if each.default is each.default_factory}
    else:
        needed = {key for key in kind.__required_keys__ if get_origin(hints[key]) is not NotRequired}
    lacking = sorted(key for key in needed if key not in value)
    if lacking:
        return f"{name and name + ': '}no {', '.join(lacking)}"
    found = (_fault(value[key], hints[key], _path(name, key)) for key in hints if key in value)
    return next((fault for fault in found if fault is not None), None)


def _finite(value: Any) -> bool:
    """Whole numbers are numbers too, up to the largest that a float holds."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and -sys.float_info.max <= value <= sys.float_info.max


def _path(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _wrong(value: Any, expected: str | None, name: str, kind: Any = None) -> str:
    shown = ascii(value)[:40] if isinstance(value, str | bool | int | float | NoneType) else type(value).__name__
    return f"{name or 'it'} is {shown}; expected {expected or kind.__name__}"
