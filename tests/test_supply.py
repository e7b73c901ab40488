"""What comes from elsewhere: the lock file covers pyproject with hashes, and every dependency states a licence."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
FREE = re.compile(r"(MIT|BSD|0BSD|Apache|PSF|Python Software Foundation|Zlib|CC0|BSL|ISC|MPL)\b")


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    import lock

    return lock


def test_the_lock_file_has_all_that_pyproject_asks_for(lock: ModuleType) -> None:
    assert lock.faults() == []
    assert {"numpy", "fastapi", "pytest", "ruff", "matplotlib", "huggingface-hub"} <= set(lock.written())
    assert "torch" not in lock.written()


def test_the_lock_file_names_no_index_and_no_path(lock: ModuleType) -> None:
    text = lock.LOCK.read_text()
    assert not re.search(r"://|--index|--find-links|(?<!\w)/", text)


def test_a_missing_name_an_old_version_and_a_pin_without_a_hash_are_found(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = re.split(r"\n(?=\S)", lock.LOCK.read_text())
    monkeypatch.setattr(lock, "LOCK", tmp_path / "requirements-dev.lock")
    lock.LOCK.write_text("\n".join(one for one in entries if not one.startswith("pytest==")))
    assert lock.faults() == ["pytest is missing"]
    lock.LOCK.write_text("\n".join(re.sub(r"^numpy==\S+", "numpy==1.0", one) for one in entries))
    assert lock.faults() == ["numpy 1.0 is not >=1.26"]
    lock.LOCK.write_text("\n".join([*entries, "unhashed==1.0"]))
    with pytest.raises(SystemExit, match=r"not a version with hashes: unhashed==1\.0"):
        lock.faults()


def test_every_dependency_at_run_time_has_a_known_licence(lock: ModuleType) -> None:
    from licences import licence

    names = lock.needed(lock.declared())
    assert {"torch", "numpy", "starlette", "sympy"} <= set(names)  # the latter two by way of others
    stated = {name: licence(name) for name in names}
    assert "unknown" not in stated.values()
    ours = {
        name: text for name, text in stated.items() if not name.startswith(("nvidia-", "cuda-"))
    }  # of torch's builds
    assert [one for one in ours.items() if not all(map(FREE.search, re.split(" AND | OR ", one[1])))] == []
