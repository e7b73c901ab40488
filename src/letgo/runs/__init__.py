"""Run folders (`run`), their files (`files`), who works there (`locks`), and how a name leads to one (`models`)."""

from letgo.runs.files import (
    load_state,
    load_weights,
    read_card,
    read_json,
    read_validation,
    save_state,
    save_weights,
    write_json,
)
from letgo.runs.locks import all_locked, locked
from letgo.runs.models import is_folder, load_model, locate, own_name, shipped
from letgo.runs.run import Run, read_log

__all__ = ["Run", "all_locked", "is_folder", "load_model", "load_state", "load_weights", "locate", "locked", "own_name"]
__all__ += ["read_card", "read_json", "read_log", "read_validation", "save_state", "save_weights", "shipped"]
__all__ += ["write_json"]
