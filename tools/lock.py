"""Write requirements-dev.lock: `python tools/lock.py`; with `--check` ask whether it covers what pyproject asks for.

The versions are those of the environment that runs this, the hashes those that the package index gives for the files
that pip would take on this platform. torch is left out: a CPU and a CUDA build have the same version and other hashes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
PYTHONS = ("3.11", "3.12", "3.13")
APART = {"torch", "letgo"}  # torch has many builds of a version, letgo is what is here


def declared(*extras: str) -> list[Requirement]:
    """Return what pyproject asks for at run time, and for these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(line) for line in project["dependencies"]]
    for extra in extras:
        for asked in map(Requirement, project["optional-dependencies"][extra]):
            found += declared(*sorted(asked.extras)) if asked.name == "letgo" else [asked]
    return list(dict.fromkeys(found))


def needed(asked: Iterable[Requirement]) -> dict[str, str]:
    """Return the names and installed versions of these and of all that they need in turn."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(one, "") for one in asked]
    while waiting:
        one, extra = waiting.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(one.name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} is not installed here; pip install -e '.[dev,hub]'") from None
        versions[name] = found.version
        for inner in {"", *one.extras} - {known for other, known in seen if other == name}:
            seen.add((name, inner))
            waiting += [(Requirement(line), inner) for line in found.requires or []]
    return dict(sorted(versions.items()))


def hashes(pins: list[str], python: str) -> dict[str, str]:
    """Return for each name the SHA-256 of the wheel that pip would take for this version of Python."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    words += ["--only-binary", ":all:", "--python-version", python, "--target", "unused", "--report", "-"]
    report = json.loads(subprocess.run([*words, *pins], check=True, capture_output=True, text=True).stdout)
    return {
        canonicalize_name(item["metadata"]["name"]): item["download_info"]["archive_info"]["hashes"]["sha256"]
        for item in report["install"]
    }


def written() -> dict[str, str]:
    """Return the versions that the lock file holds; each must have a hash."""
    entries = LOCK.read_text().replace("\\\n", " ").splitlines()
    found = re.compile(r"(\S+)==(\S+)(?: +--hash=sha256:[0-9a-f]{64})+")
    pairs = [(line, found.fullmatch(line.strip())) for line in entries if line and not line.startswith("#")]
    wrong = [line for line, match in pairs if match is None]
    if wrong:
        raise SystemExit(f"{LOCK.name}: not a version with hashes: {wrong[0]}; run tools/lock.py")
    return {match[1]: match[2] for _, match in pairs if match}


def faults() -> list[str]:
    """Return what pyproject asks for that the lock file does not hold, or holds in a version that is refused."""
    held, found = written(), []
    for one in declared("dev", "hub"):
        name = canonicalize_name(one.name)
        if name not in held and name not in APART:
            found.append(f"{name} is missing")
        elif name in held and not one.specifier.contains(held[name], prereleases=True):
            found.append(f"{name} {held[name]} is not {one.specifier}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; does the file cover what pyproject asks for?"
    )
    if parser.parse_args().check:
        found = faults()
        print(
            "\n".join(f"{LOCK.name}: {fault}; run tools/lock.py" for fault in found) or f"{LOCK.name} covers pyproject"
        )
        return int(bool(found))
    versions = {name: version for name, version in needed(declared("dev", "hub")).items() if name not in APART}
    pins = [f"{name}=={version}" for name, version in versions.items()]
    known = [hashes(pins, python) for python in PYTHONS]
    lines = [
        "# Written by tools/lock.py: all that letgo[dev,hub] needs but torch, for Linux on x86-64, "
        f"Python {', '.join(PYTHONS)}.",
        "# pip install --no-deps --require-hashes -r requirements-dev.lock",
    ]
    for name, pin in zip(versions, pins, strict=True):
        lines.append(
            " \\\n    ".join([pin, *(f"--hash=sha256:{one}" for one in sorted({each[name] for each in known}))])
        )
    LOCK.write_text("\n".join(lines) + "\n")
    print(f"{LOCK.name}: {len(pins)} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
