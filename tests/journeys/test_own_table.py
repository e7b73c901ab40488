"""The first hour of somebody with a table: train on it, fill blanks, draw rows, be told what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import User

pytestmark = pytest.mark.journey

PARTIAL = "size,cpu,gpu,memory,disk,screen,charger,system\n13in,?,,,,touch,,\n,,rtx70,,,,,linux\n"


def test_the_owner_of_a_table(user: User, example: Callable[[str], Path]) -> None:
    """Laptops with half of the steps: completions obey rules that stand in no file that training reads."""
    script = example("laptops.py")
    user.pastes(f"python {script.name} 600 laptops.csv")
    train = f"letgo train --data laptops.csv --valid {script.name}:check --out runs/laptops --steps 1000"
    said = user.pastes(train).text
    assert "600 rows of 8 cells; 24 different values" in said
    assert "196 rows are copies of others" in said
    assert "valid by laptops.py:check" in said
    report = json.loads((user.folder / "runs" / "laptops" / "report.json").read_text())
    after, chance = (report[part]["valid"]["value"] for part in ("completions", "chance"))
    assert after > chance
    assert report["generated"]["distinct"] >= 10  # of 20; it was 2 while all columns shared 24 symbols
    assert "to fill blanks: letgo complete runs/laptops" in said

    (user.folder / "partial.csv").write_text(PARTIAL)
    header, *rows = user.pastes("letgo complete runs/laptops partial.csv").out.splitlines()
    assert header == PARTIAL.splitlines()[0]
    small, fast = (row.split(",") for row in rows)
    assert (small[0], small[5], fast[2], fast[7]) == ("13in", "touch", "rtx70", "linux")
    (user.folder / "first.csv").write_text("".join(PARTIAL.splitlines(keepends=True)[:2]))
    checked = f"letgo complete runs/laptops first.csv --valid {script.name}:check --count 3 --json"
    first = json.loads(user.pastes(checked).out)
    likelihoods = [completion["likelihood"] for completion in first["completions"]]
    assert likelihoods == sorted(likelihoods, reverse=True)
    assert len({completion["values"] for completion in first["completions"]}) == len(likelihoods) >= 1
    assert user.pastes("cat partial.csv | letgo complete runs/laptops -").out.splitlines() == [header, *rows]
    made = user.pastes("letgo generate runs/laptops --count 3").out.splitlines()
    assert [len(row.split(",")) for row in made] == [8, 8, 8]
    unknown = json.loads(user.pastes("letgo generate runs/laptops --count 3 --json").out)
    assert (unknown["valid"], unknown["validity"]["n"]) == ([None] * 3, 0)  # no check was given

    (user.folder / "wrong.csv").write_text("13in,u5,integrated,16GB,512GB,ips,65W,beos\n")
    fault = user.pastes("letgo complete runs/laptops wrong.csv", code=2).text.splitlines()[-1]
    assert fault.startswith("letgo: wrong.csv, row 1, column 8 'system': 'beos' was never seen in training")
    assert "expected one of linux, none, windows, or" in fault
    (user.folder / "other.csv").write_text("u5,13in,integrated,16GB,512GB,ips,65W,linux\n")
    fault = user.pastes("letgo complete runs/laptops other.csv", code=2).text.splitlines()[-1]
    assert "column 1 'size': 'u5' was never seen there in training; expected one of 13in, 14in, 16in" in fault
    (user.folder / "few.csv").write_text("a,b\nb,a\n")
    assert "too few" in user.pastes("letgo train --data few.csv --out runs/few", code=2).text
