"""Downloads from the Hugging Face hub: only when asked, with the `hub` extra, and quick to say why not."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from letgo.data import mnist
from letgo.data.files import FilePath
from letgo.errors import LetgoError, unknown

TIMEOUT = 5.0  # seconds for the one question whether the hub answers at all


@dataclass(frozen=True)
class Repository:
    """A data set on the hub and the names its files get here."""

    repository: str
    revision: str
    files: dict[str, str]

    @property
    def page(self) -> str:
        return f"https://huggingface.co/datasets/{self.repository}"


SOURCES = {
    "sudoku-extreme": Repository("sapientinc/sudoku-extreme", "main", {f: f for f in ("train.csv", "test.csv")}),
    "maze-hard": Repository("sapientinc/maze-30x30-hard-1k", "main", {f: f for f in ("train.csv", "test.csv")}),
    # The IDX files themselves, so no parquet reader is needed; their checksums are known.
    "mnist": Repository(
        "dmitva/the-mnist-database",
        "7f936b52eb9730084a2b45ded636f6b90aabf30b",
        {name.replace("-idx", ".idx"): name for name in mnist.FILES},
    ),
}


def fetch(name: str, out: FilePath | None = None, force: bool = False, progress: bool = False) -> list[Path]:
    """Download one of SOURCES into `out` (default `data/NAME`); files that are there already are kept."""
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    source, folder = SOURCES[name], Path(out) if out is not None else Path("data") / name
    wanted = {remote: folder / local for remote, local in source.files.items()}
    missing = {remote: path for remote, path in wanted.items() if force or not path.is_file()}
    if missing:
        by_hand = f"or download {', '.join(missing)} by hand from {source.page} into {folder}"
        hub = _hub(by_hand)
        try:
            if not progress:
                import_module("huggingface_hub.utils").disable_progress_bars()
            _ask_once(hub, source, next(iter(missing)))
            for remote, path in missing.items():
                _download(hub, source, remote, path)
        except LetgoError:
            raise
        except Exception as fault:  # the hub's exceptions differ between its versions and its transports
            reason = (str(fault).strip() or type(fault).__name__).splitlines()[0]
            raise LetgoError(f"cannot fetch {name}: {reason}; connect and try again, {by_hand}") from fault
    return list(wanted.values())


def _hub(by_hand: str) -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # letgo reports nothing, so neither does its transport
    try:
        import huggingface_hub
    except ImportError:
        raise LetgoError(f"fetching needs huggingface_hub; pip install 'letgo[hub]', {by_hand}") from None
    return huggingface_hub


def _ask_once(hub: Any, source: Repository, remote: str) -> None:
    """One request without retries: `hf_hub_download` would go on trying for half a minute when offline."""
    url = hub.hf_hub_url(source.repository, remote, repo_type="dataset", revision=source.revision)
    hub.get_hf_file_metadata(url, timeout=TIMEOUT, token=False)


def _download(hub: Any, source: Repository, remote: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fetched = Path(
        hub.hf_hub_download(
            source.repository,
            remote,
            repo_type="dataset",
            revision=source.revision,
            local_dir=path.parent,
            etag_timeout=TIMEOUT,
            token=False,
        )
    )
    expected = mnist.FILES.get(path.name)
    if expected and hashlib.md5(fetched.read_bytes(), usedforsecurity=False).hexdigest() != expected:
        fetched.unlink()
        raise LetgoError(
            f"{source.page}: {remote} is not MNIST's file (md5 differs); get it elsewhere into {path.parent}"
        )
    os.replace(fetched, path)
