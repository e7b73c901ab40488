"""The Hub's client, and what goes wrong with it in a line."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import Any

LOG_IN = "log in by `hf auth login`, or set HF_TOKEN"
HIDDEN = f"there is no such repository, or it is private; check its name, or {LOG_IN}"
READING = {401: HIDDEN, 403: HIDDEN, 404: HIDDEN}
WRITING = {
    401: f"it does not take your token; {LOG_IN}",
    403: "your token may not write there; take one that may, or another name",
    404: "there is no such repository; check its name",
}


def import_hub() -> Any:
    """Return the hub's client without its telemetry: letgo reports nothing, so neither does its transport."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    hub = import_module("huggingface_hub")
    with suppress(ImportError):
        constants: Any = import_module("huggingface_hub.constants")
        constants.HF_HUB_DISABLE_TELEMETRY = True  # somebody may have imported it before
    return hub


def fault_of(error: BaseException, statuses: dict[int, str] = READING) -> str:
    """Say what an exception of the client means; they differ between its versions and its transports."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    responses = (getattr(each, "response", None) for each in chain)
    status = next((response.status_code for response in responses if response is not None), None)
    names = {type(each).__name__ for each in chain}
    if status in statuses:
        return statuses[status]
    if "LocalTokenNotFoundError" in names:
        return f"nobody is logged in; {LOG_IN}"
    if "OfflineModeIsEnabled" in names:
        return "HF_HUB_OFFLINE is set; unset it"
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if any(part in name for name in names for part in ("Connect", "Timeout")):
        return f"{reason}; are you online?"
    if "HFValidationError" in names:  # the client's word for a name that no repository can have
        return f"{reason.rstrip('.')}; name it OWNER/MODEL"
    return f"{reason}; try again later"
