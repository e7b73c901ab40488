"""What each extra adds to a plain install, in megabytes on disk: python tools/weights.py [EXTRA ...]

pip resolves the package with the extra and without; what is new is downloaded and its unpacked size summed. It needs a
network, and counts as this machine would install it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def resolved(requirements: list[str]) -> dict[str, str]:
    """The packages that pip would install into an empty environment, and where it takes them from."""
    limits = ["-c", "constraints.txt"]
    report = pip("install", "-q", "--dry-run", "--ignore-installed", "--report", "-", *limits, *requirements)
    found = json.loads(report)["install"]
    return {f"{one['metadata']['name']}=={one['metadata']['version']}": one["download_info"]["url"] for one in found}


def unpacked(package: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "-q", "--no-deps", "-d", folder, package)
        [file] = Path(folder).iterdir()
        if file.suffix != ".whl":  # a source archive: about as large as what it builds
            return file.stat().st_size
        with zipfile.ZipFile(file) as wheel:
            return sum(entry.file_size for entry in wheel.infolist())


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    base, sizes = resolved(project["dependencies"]), {}
    sizes["none"] = (len(base), sum(unpacked(package) for package in base))
    print(f"| (none) | {sizes['none'][0]} | {sizes['none'][1] / 1e6:,.0f} |", flush=True)
    for name in sys.argv[1:] or extras:
        new = set(resolved([*project["dependencies"], *flat(extras, name)])) - set(base)
        print(f"| `{name}` | {len(new)} | {sum(map(unpacked, new)) / 1e6:,.0f} |", flush=True)


def flat(extras: dict[str, list[str]], name: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found = []
    for requirement in extras[name]:
        if requirement.startswith("letgo["):
            inner = requirement.removeprefix("letgo[").split("]")[0].split(",")
            found += [one for other in inner for one in flat(extras, other)]
        else:
            found.append(requirement)
    return found


if __name__ == "__main__":
    main()
