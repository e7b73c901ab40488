"""Deliberate errors, one at a time, and whether a test notices: cosmic-ray's operators, a forked process for each.

    pip install cosmic-ray
    OMP_NUM_THREADS=1 python tools/mutate.py pinning paths kernels codecs

Prints what survives as a diff, then the score of each module. Nothing on the disk is changed: a forked process reads
the changed source in place of the file's. Left out: changes of annotations alone, and operators but the nearest.
With `--noticed FILE` what a test has noticed is written there and not tried again, so that a run that was stopped goes
on, and new tests are tried on survivors alone. A test that is weakened or removed asks for a new file.
With `--since COMMIT` only lines are changed that differ from that commit, to bring a score up to date.
"""

import argparse
import ast
import difflib
import hashlib
import importlib.machinery
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = {
    "pinning": "pinning sampling",
    "paths": "paths kernels",
    "kernels": "kernels",
    "codecs": "codecs",
    "sampling": "sampling",
    "objectives": "objectives",
    "metrics": "metrics",
    "tune": "tune",
}
NEAREST = {
    "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "FloorDiv_Div", "Mod_FloorDiv", "BitAnd_BitOr",
    "BitOr_BitAnd", "Lt_LtE", "Lt_Gt", "LtE_Lt", "LtE_GtE", "Gt_GtE", "Gt_Lt", "GtE_Gt", "GtE_LtE", "Eq_NotEq",
    "NotEq_Eq", "Is_IsNot", "IsNot_Is",
}  # fmt: skip


def meaning(source: str) -> str:
    """The code without annotations; nothing if it is none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def mutants(source: str) -> Iterator[str]:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    seen = {meaning(source), ""}
    for name in operator_names():
        kind = name.rpartition("/")[2]
        if kind.startswith(("ReplaceBinary", "ReplaceComparison")) and kind.split("_", 1)[1] not in NEAREST:
            continue
        if kind.startswith("Variable"):
            continue
        occurrence = 0
        while (changed := mutate_code(source, get_operator(name)(), occurrence)) is not None:
            occurrence += 1
            if (key := meaning(changed)) not in seen:
                seen.add(key)
                yield changed


def differing(before: str, after: str) -> set[int]:
    """The numbers of the lines of `after` that are not so in `before`, or where lines of it are gone."""
    blocks = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    return {line for kind, _, _, start, end in blocks if kind != "equal" for line in range(start, max(end, start + 1))}


class QuickFirst:
    """Tests marked as fast come first, slow ones last: the first that fails ends the run."""

    @staticmethod
    def pytest_collection_modifyitems(items: list) -> None:
        items.sort(
            key=lambda item: (item.get_closest_marker("slow") is not None, item.get_closest_marker("fast") is None)
        )


def notices(file: Path, changed: str, tests: list[str], seconds: int) -> bool:
    """Whether a test fails, or does not end, in a process that reads `changed` for that file."""
    if (pid := os.fork()) == 0:
        os.setsid()
        signal.alarm(seconds)
        loader = importlib.machinery.SourceFileLoader
        read, stats = loader.get_data, loader.path_stats

        def get_data(self, path):
            return changed.encode() if os.path.realpath(path) == str(file) else read(self, path)

        def path_stats(self, path):  # no bytecode of the file as it is may be taken
            return {"mtime": 0, "size": -1} if os.path.realpath(path) == str(file) else stats(self, path)

        loader.get_data, loader.path_stats, sys.dont_write_bytecode = get_data, path_stats, True
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        import pytest

        flags = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--hypothesis-seed=0"]
        flags += ["-m", "not browser and not emulator and not extras and not journey and not ray"]  # slow ones, too
        os._exit(int(pytest.main([*flags, *tests], plugins=[QuickFirst()])) != 0)
    return os.waitpid(pid, 0)[1] != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", choices=[*TESTS], metavar="MODULE", help=", ".join(TESTS))
    parser.add_argument("--seconds", type=int, default=300, help="a test run that takes longer has noticed something")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth mutant, from the Ith")
    parser.add_argument("--since", metavar="COMMIT", help="change only lines that are not as they were then")
    parser.add_argument("--noticed", type=Path, help="a file of what has been noticed, read and added to")
    options = parser.parse_args()
    known = set(options.noticed.read_text().split()) if options.noticed and options.noticed.exists() else set()
    import hypothesis  # what is imported here, before letgo, is shared by all forked processes
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch  # noqa: F401

    hypothesis.settings.register_profile("calm", deadline=None)  # a slow machine has noticed nothing
    hypothesis.settings.load_profile("calm")
    root, (part, parts) = Path(__file__).resolve().parents[1], map(int, options.part.split("/"))
    for module in options.modules:
        file = root / "src" / "letgo" / f"{module}.py"
        tests = [str(root / "tests" / f"test_{name}.py") for name in TESTS[module].split()]
        source, noticed, survived = file.read_text(), 0, 0
        if notices(file, source, tests, options.seconds):
            sys.exit(f"the tests of {module} fail without any change; run them alone")
        new = None
        if options.since:
            old = ["git", "show", f"{options.since}:src/letgo/{module}.py"]
            new = differing(subprocess.run(old, cwd=root, check=True, capture_output=True, text=True).stdout, source)
        for number, changed in enumerate(mutants(source)):
            if number % parts != part or (new is not None and not new & differing(changed, source)):
                continue
            key = hashlib.sha256(f"{module}\n{changed}".encode()).hexdigest()
            if key in known or notices(file, changed, tests, options.seconds):
                noticed += 1
                if options.noticed and key not in known:
                    with options.noticed.open("a") as log:
                        log.write(key + "\n")
                continue
            survived += 1
            lines = difflib.unified_diff(
                source.splitlines(), changed.splitlines(), file.name, file.name, n=0, lineterm=""
            )
            print("\n".join(line for line in lines if not line.startswith(("---", "+++"))), flush=True)
        print(f"{module}: {noticed} of {noticed + survived} noticed, {survived} survive", flush=True)


if __name__ == "__main__":
    main()
