"""What tests of refusals share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from letgo.errors import LetgoError


def fault(call: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The one line with which a call refuses."""
    with pytest.raises(LetgoError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
