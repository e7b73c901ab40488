"""Downloads from the Hugging Face hub: only when asked, with the `hub` extra, and quick to say why not."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from letgo.data import mnist
from letgo.data.files import FilePath, regular_file, write_atomically
from letgo.data.hub import import_hub
from letgo.errors import LetgoError, unknown

TIMEOUT = 5.0  # seconds for the one question whether the hub answers at all
RECORD = "fetched.txt"  # in the folder: a line for each file with its name, its revision and its SHA-256
COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """A Repository is a data set on the hub and the names its files get here."""

    repository: str
    revision: str
    files: dict[str, str]

    @property
    def page(self) -> str:
        return f"https://huggingface.co/datasets/{self.repository}"


TABLES = {name: name for name in ("train.csv", "test.csv")}
SOURCES = {
    "sudoku-extreme": Repository("sapientinc/sudoku-extreme", "58942f96baeb572ca3127e2a9e9c70f330783d6b", TABLES),
    "maze-hard": Repository("sapientinc/maze-30x30-hard-1k", "549754de3d67eebe57b6b22c7d226b9412d55b07", TABLES),
    # The IDX files themselves, so no parquet reader is needed; their checksums are known.
    "mnist": Repository(
        "dmitva/the-mnist-database",
        "7f936b52eb9730084a2b45ded636f6b90aabf30b",
        {name.replace("-idx", ".idx"): name for name in mnist.FILES},
    ),
}


def fetch(
    name: str, out: FilePath | None = None, force: bool = False, progress: bool = False, revision: str | None = None
) -> list[Path]:
    """Download one of SOURCES into `out` (default `data/NAME`); files that are there already are kept.

    Those fetched come from one commit, `revision` or the source's own, which is recorded beside them.
    """
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    source, folder = SOURCES[name], Path(out) if out is not None else Path("data") / name
    wanted = {remote: folder / local for remote, local in source.files.items()}
    missing = {remote: path for remote, path in wanted.items() if force or not path.is_file()}
    if revision is not None:
        if not COMMIT.fullmatch(revision):
            raise LetgoError(f"--revision {ascii(revision)[:60]}: expected the 40 hexadecimal digits of a commit")
        source = replace(source, revision=revision)
        for remote, path in wanted.items():
            if remote not in missing and _recorded(folder).get(path.name) != (revision, _sha256(path)):
                raise LetgoError(f"{path} is not recorded as of that revision; --force fetches it again")
    if missing:
        by_hand = f"or download {', '.join(missing)} by hand from {source.page} into {folder}"
        hub = _hub(by_hand)
        try:
            if not progress:
                import_module("huggingface_hub.utils").disable_progress_bars()
            source = _at_a_commit(hub, source, next(iter(missing)))
            for remote, path in missing.items():
                _download(hub, source, remote, path)
                _record(folder, path, source.revision)
        except LetgoError:
            raise
        except Exception as fault:  # the hub's exceptions differ between its versions and its transports
            reason = (str(fault).strip() or type(fault).__name__).splitlines()[0]
            raise LetgoError(f"cannot fetch {name}: {reason}; connect and try again, {by_hand}") from fault
    return list(wanted.values())


def _at_a_commit(hub: Any, source: Repository, remote: str) -> Repository:
    """Return the source at the commit that its revision is now, which a branch may leave between two files.

    It is one request without retries: `hf_hub_download` would go on trying for half a minute when offline.
    """
    url = hub.hf_hub_url(source.repository, remote, repo_type="dataset", revision=source.revision)
    commit = getattr(hub.get_hf_file_metadata(url, timeout=TIMEOUT, token=False), "commit_hash", None)
    return replace(source, revision=commit or source.revision)


def _recorded(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the revision and the SHA-256 of each file of a folder that was fetched."""
    path = folder / RECORD
    if not path.exists():
        return {}
    regular_file(path)
    lines = [line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return {words[0]: (words[1], words[2]) for words in lines if len(words) == 3}


def _record(folder: Path, path: Path, revision: str) -> None:
    known = _recorded(folder) | {path.name: (revision, _sha256(path))}
    write_atomically(folder / RECORD, "".join(f"{name} {' '.join(about)}\n" for name, about in known.items()))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hub(by_hand: str) -> Any:
    try:
        return import_hub()
    except ImportError:
        raise LetgoError(f"fetching needs huggingface_hub; pip install 'letgo[hub]', {by_hand}") from None


def _download(hub: Any, source: Repository, remote: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    where = {"repo_type": "dataset", "revision": source.revision, "local_dir": path.parent}
    fetched = Path(hub.hf_hub_download(source.repository, remote, **where, etag_timeout=TIMEOUT, token=False))
    expected = mnist.FILES.get(path.name)
    if expected and hashlib.md5(fetched.read_bytes(), usedforsecurity=False).hexdigest() != expected:
        fetched.unlink()
        raise LetgoError(
            f"{source.page}: {remote} is not MNIST's file (md5 differs); get it elsewhere into {path.parent}"
        )
    os.replace(fetched, path)
