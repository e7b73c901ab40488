"""Packages that only some commands need, imported where they are used."""

from __future__ import annotations

import os
import secrets
from importlib import import_module
from typing import Any

from letgo.errors import LetgoError


def extra(package: str, name: str, flag: str) -> Any:
    """Return the package of an extra, or what to install."""
    try:
        return import_module(package)
    except ImportError:
        raise LetgoError(f"{flag} needs the {name} extra: pip install 'letgo[{name}]'") from None


def connected_ray(address: str) -> Any:
    """Return Ray, joined to a cluster, or to a new one of this machine that ends with this process.

    Whoever asks shows a token. A cluster of others has its token where Ray looks for it (RAY_AUTH_TOKEN,
    RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token); only RAY_AUTH_MODE=disabled, set by hand, does without.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray reads these when it is imported
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = address == "local"
    if local and os.environ["RAY_AUTH_MODE"] == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray = extra("ray", "ray", "--ray")
    more = {"include_dashboard": False} if local else {}
    try:
        ray.init(address, **more, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except Exception as error:  # Ray raises many kinds
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise LetgoError(f"--ray {address}: {reason}") from None
    return ray
