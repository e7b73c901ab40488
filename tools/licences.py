"""List the licences of all that letgo needs, as the packages state them: `python tools/licences.py [EXTRA ...]`."""

from __future__ import annotations

import sys
from importlib.metadata import distribution

from lock import declared, needed


def licence(name: str) -> str:
    """Return what a package says: an SPDX expression, else classifiers, else the first line of its licence's text."""
    found = distribution(name)
    meta = found.metadata
    classifiers = [line.split(" :: ")[-1] for line in meta.get_all("Classifier", []) if line.startswith("License :: ")]
    files = [found.read_text(f"licenses/{file}") or found.read_text(file) for file in meta.get_all("License-File", [])]
    texts = [meta.get("License"), *files]
    first = [text.strip().splitlines()[0] for text in texts if text and text.strip()]
    stated = meta.get("License-Expression") or " OR ".join(one for one in classifiers if one != "OSI Approved")
    return (stated or (first[0] if first else "unknown")).strip()


def main() -> int:
    extras = sys.argv[1:]
    found = {f"{name} {version}": licence(name) for name, version in needed(declared(*extras)).items()}
    width = max(map(len, found))
    print("\n".join(f"{name:{width}}  {stated}" for name, stated in found.items()))
    silent = [name for name, stated in found.items() if stated == "unknown"]
    print(f"{len(found)} packages, {len(silent)} without a stated licence", file=sys.stderr)
    return int(bool(silent))


if __name__ == "__main__":
    raise SystemExit(main())
