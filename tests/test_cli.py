"""The command line: exit codes, one line per fault, and the whole path from training to a solved board."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from letgo import __version__
from letgo.cli import build_parser, main
from letgo.codecs import OneHot
from letgo.config import Config
from letgo.errors import LetgoError
from letgo.presets import PRESETS
from letgo.progress import clock
from letgo.runs import load_state, load_weights, save_weights
from letgo.solver import Solver
from letgo.tasks.connectivity import reachability
from letgo.training.train import seconds_of_a_step
from letgo.training.trainer import Trainer

SOURCE = Path(__file__).parents[1] / "src"
FAST = ["--batch", "4", "--boards", "20", "--validate", "0", "--device", "cpu"]
DONE, NEARLY, BLANK = "1234341221434321", "123434122143432.", "." * 16
REPORT = {
    *("model", "task", "regime", "rule", "settings", "steps", "count", "seed", "validity", "pass_at_k"),
    *("violation_rate", "codeword_distance", "uniqueness", "calls", "seconds", "device", "version", "command"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A 4x4 model after two steps: it knows nothing, so it solves only what has no blank."""
    out = tmp_path_factory.mktemp("runs") / "mini"
    assert main(["train", "sudoku-mini", "--out", str(out), "--steps", "2", "--keep", "1", "--quiet", *FAST]) == 0
    return str(out)


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--device auto` must mean the same wherever these tests run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def python(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    env |= {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment}
    return subprocess.run([sys.executable, *words], env=env, input=stdin, capture_output=True, text=True, timeout=300)


def numbers(text: str) -> dict[str, Any]:
    return json.loads(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("solve --model RUN 123", "the puzzle: expected 16 cells, got 3; one puzzle per line, '.' for a blank"),
        (f"solve --model RUN {BLANK} 12y4............", "puzzle 2: character 3 (r1c3) is 'y'"),
        ("solve --model RUN 11..............", "clues clash: 1 stands at r1c1 and at r1c2, in the same row"),
        ("solve --model nowhere", "unknown model or run folder 'nowhere'"),
        ("solve --model RUN@7", "keeps no step 7; it has 1"),
        ("solve --model sudoku-mini@7", "the shipped model 'sudoku-mini' keeps no steps; leave @7 out"),
        (
            "evaluate maze-muon --rule ddpm --data RUN --regime vaild",
            "unknown regime 'vaild'; did you mean valid? choose one of test, valid, train",
        ),
        (f"solve latin --model RUN {BLANK}", "was trained for sudoku, not for latin"),
        (f"solve sudoku-baseline --model RUN {BLANK}", "two models were named"),
        (f"solve --model RUN {BLANK} --file RUN/config.json", "give puzzles as words or by --file, not both"),
        ("solve --model RUN --file nowhere.txt", "nowhere.txt: no such file"),
        (f"solve --model RUN {BLANK} --rule guess", "unknown rule 'guess'; choose one of ddpm, ddim, tweedie"),
        (f"solve --model RUN {BLANK} --rule em", "rule 'em' needs --sigma: none given and none stored"),
        (f"solve --model RUN {BLANK} --steps 0", "--steps: expected a whole number from 1 to 1000000, got '0'"),
        (f"solve --model RUN {BLANK} --device tpu", "unknown device 'tpu'"),
        (f"solve --model RUN {BLANK} --sideways", "unrecognized arguments: --sideways"),
        ("solve --model hub:", "hub:"),
        ("evaluate RUN", "the following arguments are required: --rule"),
        (
            "evaluate RUN --rule ddpm --regime hardest",
            "unknown regime 'hardest'; did you mean hard? choose 4, medium, hard",
        ),
        ("evaluate RUN --rule ddpm --count 0", "--count: expected a whole number from 1 to 1000000000, got '0'"),
        ("evaluate RUN --rule ddpm --data nowhere.npz", "nowhere.npz"),
        ("evaluate RUN --rule tweedie --sigma 1 --count 3", "takes no sigma"),
        ("evaluate RUN --rule em --sigma nan", "--sigma: expected a number from 0, got 'nan'"),
        ("evaluate RUN --rule em-decay --sigma 7 --tau-start 1.2", "--tau-start: expected a number from 0 to 1"),
        ("train sudoku-mini", "train needs --out RUN"),
        ("train sudoku-mini --out OUT --seeds 1,1", "--seeds 1,1: one of them twice"),
        ("train sudoku-mini --out OUT --learning-rate 0", "--learning-rate: expected a number above 0, got 0"),
        ("train sudoku-mini --out OUT --simple-weight 1e9", "--simple-weight: expected a number from 0 to 100"),
        ("train --out OUT", "train needs a PRESET (`letgo presets` lists them), --data TABLE or --task FILE.py:Class"),
        ("train sudoku-mini --grid 2x2 --out OUT", "--grid is for a table, `letgo train --data FILE`; leave it out"),
        ("train --data nowhere.csv --out OUT", "nowhere.csv: no such file"),
        ("train --data nowhere.csv --out OUT --grid 2by2", "--grid: expected HxW, for instance 7x4, got '2by2'"),
        ("complete RUN nowhere.csv", "was not trained on a table; fill its blanks with `letgo solve"),
        ("app --host nowhere.invalid", "choose another with --host"),
        ("train giant --out OUT", "unknown preset 'giant'; `letgo presets` lists them"),
        ("train sudoku-mini --out OUT --seeds 1,x", "--seeds: expected a seed from 0 to 4294967295, got 'x'"),
        ("train sudoku-mini --out OUT --seeds 1,2 --seed 3", "give --seed or --seeds, not both"),
        ("train sudoku-mini --out OUT --precision fp16 --device cpu", "unknown choice 'fp16'; did you mean bf16?"),
        ("train sudoku-mini --out OUT --data nowhere.npz", "nowhere.npz"),
        ("train sudoku-mini --out RUN --steps 9 --batch 5 --boards 20", "was started with batch=4, not 5"),
        ("train sudoku-mini --out ", "--out: expected a path, got nothing"),
        ("evaluate  --rule ddpm", "no model named; name a run folder or a shipped model: sudoku, "),
        ("train sudoku-baseline --out OUT --simple-weight .5", "--simple-weight is for self-correction, and sudoku-b"),
        ("train sudoku-baseline --out OUT --full-gradient", "has none; train sudoku"),
        ("reproduce table1 --quick --page RUN/config.json/x.md", "--page "),
        ("tune RUN --rule ddpm", "tune needs --rule em or --rule em-decay"),
        ("tune RUN --rule tweedie --sigmas 0.5", "rule 'tweedie' takes no --sigmas; leave it out"),
        ("tune RUN --rule em --t-maxs 0.5", "rule 'em' takes no --t-maxs; leave it out"),
        ("evaluate RUN --rule ddpm --t-max 0.5", "rule 'ddpm' takes no t_max and t_min; only tweedie, resample"),
        ("tune RUN --rule em-decy", "unknown rule 'em-decy'; did you mean em-decay?"),
        ("bench smaple", "argument what: unknown choice 'smaple'; did you mean sample? choose one of train, sample"),
        ("data mak sudoku", "unknown choice 'mak'; did you mean make? choose one of make, fetch, check, digits; see"),
        (
            "data make latin --count 1 --out OUT/x.npz --sead 3",
            "unrecognized arguments: --sead 3; did you mean --seed? see `letgo data make --help`",
        ),
        ("push sudoku-min me/x", "unknown model or run folder 'sudoku-min'; did you mean sudoku-mini?"),
        ("train connectivity --optimizer muon --out OUT", "muon is for Transformers"),
        ("tune RUN@1 --rule em --count 5", "settings of step 1 would be kept as those of"),
        ("tune RUN --rule em --count 3", "5 folds need 5 instances or more, got 3"),
        ("tune RUN --rule em --tau-starts 0.5", "takes no --tau-starts; use em-decay"),
        ("tune RUN --rule em --count 5 --out RUN", "letgo: --out "),
        ("evaluate RUN --rule ddpm --count 3 --out RUN", "letgo: --out "),
        ("evaluate RUN --rule ddpm --count 3 --out RUN/config.json/x.json", "config.json cannot be written to"),
        ("solve sudoku-extrem 123", "folder 'sudoku-extrem'; did you mean sudoku-extreme?"),
        ("solve Sudoku", "unknown task, model or run folder 'Sudoku'; did you mean sudoku?"),
        ("solve xxX", "the puzzle: expected 81 cells, got 3"),
        ("solve RUN/config.json", "config.json is a file; to solve what is in it: --file"),
        ("solve RUN RUN/config.json", "config.json is a file; to solve what is in it: --file"),
        ("reproduce page --out OUT --page OUT/page.md", "no such folder, so there is nothing for"),
        (f"evaluate RUN --rule ddpm --count {10**12}", "--count: expected a whole number from 1 to 1000000000,"),
        ("solve --threads 100000", "--threads: expected a number of threads from 1 to "),
        ("fly RUN", "unknown command 'fly'; `letgo --help` lists them"),
        ("--quiet evalute RUN", "unknown command 'evalute'; did you mean evaluate? `letgo --help` lists them"),
        ("--fly", "unrecognized arguments: --fly; see `letgo --help`"),
        (
            "train sudoku-mini --outt x",
            "unrecognized arguments: --outt x; did you mean --out? see `letgo train --help`",
        ),
        (f"solve --model RUN {BLANK} --rule Tweedy", "unknown rule 'Tweedy'; did you mean tweedie? choose one of ddpm"),
        ("reproduce tabel7", "unknown table 'tabel7'; did you mean table7?"),
        ("data fetch mazehard", "unknown data set 'mazehard'; did you mean maze-hard? choose one of sudoku-extreme"),
        ("data make suduko --count 1 --out OUT/x.npz", "unknown task 'suduko'; did you mean sudoku? choose one of"),
    ],
)
def test_a_fault_costs_one_line_and_code_2(
    words: str,
    message: str,
    run: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # nothing here may go online
    said = [word.replace("RUN", run).replace("OUT", str(tmp_path / "out")) for word in words.split(" ")]
    assert main(said) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("letgo: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out" / "state.pt").exists()


@pytest.mark.parametrize("text", ["", ","])
@pytest.mark.parametrize(
    "words",
    [
        "train sudoku-mini --dry-run --seeds",
        "tune sudoku-mini --rule em --sigmas",
        "reproduce table1 --dry-run --seeds",
    ],
)
def test_an_empty_list_is_not_taken_for_none(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), text]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{words.split()[-1]}: expected values with commas between them, got '{text}'" in captured.err


def test_an_empty_list_of_steps_keeps_none() -> None:
    """The shipped sudoku-mini was trained with it."""
    assert build_parser().parse_args(["train", "sudoku-mini", "--keep", ""]).keep == ()


@pytest.mark.parametrize("words", [[""], ["sudoku", ""], ["--file", ""], ["", "--json"]])
def test_an_empty_word_is_no_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "empty" in captured.err or "no name given" in captured.err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/locked/x.npz"), "letgo: /locked/x.npz: Permission denied"),
        (OSError(36, "File name too long", "a\n" * 999 + "b"), "letgo: a\\na\\n"),
        (MemoryError(), "letgo: not enough memory for that"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "letgo: not enough memory for that"),
    ],
)
def test_what_the_machine_refuses_is_said_in_a_line(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*words: Any) -> None:
        raise error

    monkeypatch.setattr("letgo.solver.load", refuse)
    assert main(["evaluate", "sudoku-mini", "--rule", "ddpm"]) == 2
    assert capsys.readouterr().err.startswith(message)
    with pytest.raises(type(error)):
        main(["evaluate", "sudoku-mini", "--rule", "ddpm", "--debug"])


def test_an_illegal_access_is_not_called_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("letgo.solver.load", fail)
    with pytest.raises(RuntimeError, match="illegal"):
        main(["evaluate", "sudoku-mini", "--rule", "ddpm"])


def test_puzzles_without_answers_are_measured_with_their_own_clues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their blanks are no symbols: clues drawn from those would clash."""
    path = tmp_path / "puzzles.txt"
    path.write_text("\n".join([NEARLY] * 3 + ["1..4..............."[:16]] * 3))
    words = ["evaluate", "sudoku-mini", "--rule", "tweedie", "--data", str(path), "--count", "6", "--steps", "30"]
    assert main([*words, "--json"]) == 0
    report = numbers(capsys.readouterr().out)
    assert report["regime"] == "file"
    assert report["validity"]["value"] > 0.6
    assert main([*words, "--regime", "hard"]) == 2
    assert "bring their own clues; leave --regime out" in capsys.readouterr().err
    path.write_text("\n".join([DONE] * 6))  # complete boards: clues are drawn as the regime says
    assert main([*words, "--json", "--regime", "hard"]) == 0
    assert numbers(capsys.readouterr().out)["regime"] == "hard"


def test_graphs_without_answers_have_no_entries_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graphs.txt"
    path.write_text("010000/101000/010000/000010/000100/000000\n")
    words = ["evaluate", "connectivity", "--rule", "tweedie", "--regime", "6", "--data", str(path), "--count", "1"]
    assert main([*words, "--steps", "3", "--json"]) == 0
    report = numbers(capsys.readouterr().out)
    assert "element_accuracy" not in report
    assert report["all_joined"]["value"] == 0


def test_settings_tuned_for_other_steps_are_remarked_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "sudoku-mini", "--rule", "em-decay", "--count", "2"]
    assert main([*words, "--steps", "5"]) == 0
    assert "em-decay was tuned for 50 steps, not for 5" in capsys.readouterr().err
    for more in (["--sigma", "7"], ["--quiet"]):
        assert main([*words, "--steps", "5", *more]) == 0
        assert "tuned" not in capsys.readouterr().err
    assert main(words) == 0
    assert "tuned" not in capsys.readouterr().err


def test_faults_in_a_file_name_its_line(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "puzzles.txt").write_text(f"# two puzzles\n{BLANK}\n12\n")
    assert main(["solve", "--model", run, "--file", str(tmp_path / "puzzles.txt")]) == 2
    assert f"{tmp_path / 'puzzles.txt'}, line 3: expected 16 cells, got 2" in capsys.readouterr().err


def test_unsolved_boards_are_no_training_data(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "puzzles.txt").write_text(f"{DONE}\n{BLANK}\n")
    out = ["train", "sudoku-mini", "--out", str(tmp_path / "out"), "--data", str(tmp_path / "puzzles.txt"), *FAST]
    assert main([*out, "--steps", "1"]) == 2
    assert "puzzle 2 has no answer" in capsys.readouterr().err
    (tmp_path / "puzzles.txt").write_text(f"{DONE}\n")
    assert main([*out, "--steps", "1"]) == 0


def test_an_unsolved_puzzle_says_so_and_the_code_is_1(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", BLANK, DONE, "--model", run, "--steps", "3", "--tries", "2"]) == 1
    assert capsys.readouterr().out == f"unsolved\n{DONE}\n"


def test_puzzles_may_come_before_or_after_options(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([DONE, "--model", run], ["--model", run, DONE], ["sudoku", "--model", run, "--steps", "3", DONE]):
        assert main(["solve", *words]) == 0
        assert capsys.readouterr().out == f"{DONE}\n"


def test_a_model_may_be_named_first(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (run, f"{run}@1"):
        assert main(["solve", name, DONE]) == 0
        assert capsys.readouterr().out == f"{DONE}\n"


def test_records_as_json_one_per_line(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "--json", "--model", run, DONE, BLANK, "--steps", "2", "--tries", "3"]) == 1
    first, second = map(numbers, capsys.readouterr().out.splitlines())
    assert list(first) == ["puzzle", "solved", "board", "tries", "calls", "seconds"]
    assert (first["puzzle"], first["solved"], first["board"], first["tries"], first["calls"]) == (
        DONE,
        True,
        DONE,
        1,
        1,
    )
    assert (second["solved"], second["board"], second["tries"], second["calls"]) == (False, None, 3, 6)


def test_puzzles_come_from_a_file_or_standard_input(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"# one blank, one solved\n{BLANK}\n\n{DONE}  # no blank\n"
    (tmp_path / "puzzles.txt").write_text(text)
    words = ["solve", "--model", run, "--steps", "2", "--file"]
    assert main([*words, str(tmp_path / "puzzles.txt")]) == 1
    from_file = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    assert main([*words, "-"]) == 1
    assert capsys.readouterr().out == from_file == f"unsolved\n{DONE}\n"


def test_a_csv_may_be_piped_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
    text = f"\ufeffid,Puzzle,solution\r\n7,{'0' * 81},{answer}\r\n8,{answer},{answer}\r\n"
    (tmp_path / "puzzles.csv").write_text(text, newline="")
    words = ["solve", "--steps", "1", "--tries", "1", "--file"]
    assert main([*words, str(tmp_path / "puzzles.csv")]) == 1
    from_file = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    assert main([*words, "-"]) == 1
    assert capsys.readouterr().out == from_file == f"unsolved\n{answer}\n"


class Knowing(nn.Module):
    """Always the same right board."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        if context is not None:
            return OneHot(2).encode(reachability(context).flatten(1).long())
        return OneHot(4).encode(torch.tensor([[int(c) - 1 for c in DONE]])).expand_as(x_t)


@pytest.fixture
def knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models by preset name, with a network that needs no training."""
    monkeypatch.setattr("letgo.solver.load", lambda name, *_, **__: Solver(PRESETS[name], Knowing(), "cpu"))


@pytest.mark.fast
@pytest.mark.usefixtures("knowing")
def test_solved_puzzles_are_lines_in_order_and_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "sudoku-mini", NEARLY, BLANK, DONE]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{DONE}\n{DONE}\n{DONE}\n"
    assert captured.err == ""


@pytest.mark.usefixtures("knowing")
def test_boards_can_be_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "sudoku-mini", "--show", "12.............."]) == 0
    drawn = capsys.readouterr().out
    assert "[1][2]" in drawn
    assert drawn.count("\n") >= 6
    assert main(["solve", "connectivity", "--show", "010/101/010"]) == 0
    assert "components: {1, 2, 3}" in capsys.readouterr().out


@pytest.mark.usefixtures("knowing")
def test_without_a_puzzle_an_example_is_drawn_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "connectivity"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("puzzle  ")
    assert "\nanswer  " in said
    assert "Solved by 'connectivity' with tweedie: 1 try, 1 network calls" in said
    assert said.endswith("nobody told it a rule.\n")
    assert main(["solve", "connectivity", "--json"]) == 0
    assert numbers(capsys.readouterr().out)["solved"] is True


def test_an_example_that_is_not_solved_comes_without_praise(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", run, "--steps", "2", "--tries", "1"]) == 1
    said = capsys.readouterr().out
    assert "\nNot solved with tweedie: 1 try, 2 network calls" in said
    assert said.endswith(" s with loading the model.\n")


def test_a_rule_that_was_tuned_for_other_steps_is_replaced_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """EM decay draws nothing valid with a quarter of its steps; what takes its place draws fewer, and says so."""
    assert main(["generate", "latin", "--steps", "2"]) == 0
    told = "letgo: em-decay, which draws most valid boards, was tuned for 200 steps; with 2 it is resample, and fewer"
    assert capsys.readouterr().err.startswith(told)
    assert main(["generate", "latin", "--steps", "2", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_generated_boards_are_lines_and_the_verdict_goes_to_stderr(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", run, "--count", "3", "--steps", "2"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert [len(line) for line in captured.out.splitlines()] == [16] * 3
    assert captured.err == "0 of 3 obey the rules (tweedie)\n"
    assert main([*words, "--json", "--quiet"]) == 0
    quiet = capsys.readouterr()
    record = numbers(quiet.out)
    assert quiet.err == ""
    assert record["boards"] == captured.out.splitlines()
    assert record["valid"] == [False] * 3
    assert record["validity"]["n"] == 3
    assert main([*words, "--show"]) == 0
    assert "│" in capsys.readouterr().out


@pytest.mark.fast
def test_a_report_as_json_and_as_text(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", run, "--rule", "ddpm", "--count", "9", "--steps", "3", "--regime", "8", "--passes", "2"]
    words += ["--seed", "5", "--out", str(tmp_path / "new" / "report.json")]
    assert main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    report = numbers(captured.out)
    assert captured.err == ""
    assert set(report) >= REPORT
    assert (report["model"], report["task"], report["regime"], report["rule"]) == (run, "sudoku", "8", "ddpm")
    assert (report["steps"], report["count"], report["seed"], report["calls"]) == (3, 9, 5, 9 * 3 * 2)
    assert set(report["validity"]) == {"value", "low", "high", "n"}
    assert report["pass_at_k"]["k"] == 2
    assert report["version"] == __version__
    assert report["command"] == f"letgo {' '.join(words)} --json"
    assert numbers((tmp_path / "new" / "report.json").read_text()) == report
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "sudoku 8  ddpm  3 steps, seed 5" in text
    assert "pass@2" in text
    assert "54 network calls" in text


def test_what_trying_again_takes_is_announced_and_refused_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from letgo.progress import Voice
    from letgo.solver import Solver

    said: list[str] = []
    monkeypatch.setattr(Solver, "short_try", 3)
    monkeypatch.setattr(Voice, "announce", lambda self, text: said.append(text))
    words = ["evaluate", "sudoku-mini", "--rule", "ddpm", "--count", "2", "--device", "cpu"]
    assert main([*words, "--until-sure", "--sure=-0.5", "--passes", "2"]) == 0
    assert said[-1].startswith("sampling 2 instances 2 times by sudoku-mini with ddpm, 3 steps, on ")
    assert "3 steps, seed 0" in capsys.readouterr().out
    for more in (["--sure=-0.5"], ["--whole-tries"]):
        assert main([*words, *more]) == 2
        assert "say when --until-sure ends" in capsys.readouterr().err


def test_parts_are_measured_apart_and_merged_to_the_report_of_the_whole(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"evaluate {run} --rule ddpm --count 9 --steps 3 --regime 8 --passes 2 --plain".split()
    assert main([*words, "--json"]) == 0
    whole = numbers(capsys.readouterr().out)
    files = [str(tmp_path / f"part{i}.json") for i in range(3)]
    for i, file in enumerate(files):
        assert main([*words, "--shard", f"{i}/3", "--out", file]) == 0
        assert numbers(Path(file).read_text())["shard"] == f"{i}/3"
    capsys.readouterr()
    assert main(["merge", *files[::-1], "--json", "--out", str(tmp_path / "whole.json")]) == 0
    merged = numbers(capsys.readouterr().out)
    assert numbers((tmp_path / "whole.json").read_text()) == merged
    apart = ("seconds", "command")
    assert {k: v for k, v in merged.items() if k not in apart} == {k: v for k, v in whole.items() if k not in apart}
    assert main(["merge", *files]) == 0
    assert "sudoku 8  ddpm  3 steps, seed 0" in capsys.readouterr().out
    (tmp_path / "part.json").write_text('{"task": "sudoku"}')
    for wrong, says in (
        (["merge", str(tmp_path / "part.json")], "part.json: not a report of `letgo evaluate`"),
        (["merge", str(tmp_path / "none.json")], "none.json"),
        (["merge", str(tmp_path / "whole.json")], "without its outcomes cannot be merged"),
        ([*words, "--shard", "0/10"], "N at most the 9 instances"),
    ):
        assert main(wrong) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


def test_parts_of_other_weights_or_other_instances_are_not_merged(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the run, the file and all words have the same names."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(Path(run) / name, tmp_path / name)
    words = f"evaluate {tmp_path} --rule ddpm --count 4 --steps 2 --plain --quiet --data {tmp_path / 'd.npz'}".split()
    make = ["data", "make", "sudoku", "--size", "4", "--count", "4", "--quiet", "--force", "--out", words[-1]]

    def part(number: int) -> str:
        path = tmp_path / f"part{number}.json"
        assert main([*words, "--shard", f"{number}/2", "--out", str(path)]) == 0
        return str(path)

    assert main(make) == 0
    parts = [part(0), part(1)]
    assert main(["merge", *parts]) == 0
    save_weights(
        tmp_path / "model.safetensors", {k: 2 * v for k, v in load_weights(tmp_path / "model.safetensors").items()}
    )
    part(1)
    assert main(["merge", *parts]) == 2
    assert "the parts differ in weights_crc32" in capsys.readouterr().err
    part(0)
    assert main([*make, "--seed", "1"]) == 0
    part(1)
    assert main(["merge", *parts]) == 2
    assert "the parts differ in instances_crc32" in capsys.readouterr().err


def test_a_sampler_that_diverged_says_so_in_valid_json(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    assert (
        main(["evaluate", run, "--rule", "em", "--sigma", "1e30", "--count", "3", "--steps", "9", "--out", str(out)])
        == 0
    )
    said = capsys.readouterr()
    assert "codeword_distance  not a number: the sampler diverged  n=3" in said.out
    assert said.err == "letgo: the sampler diverged: 9 steps are too few for this sigma\n"
    report = json.loads(out.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert report["codeword_distance"] == {"value": None, "low": None, "high": None, "n": 3}


@pytest.mark.parametrize("best", ["{}", '{"sigma": "a"}', '{"sigma": true}', '{"sigma": 1, "tau_start": "b"}', "3"])
def test_a_damaged_tuning_is_said_in_a_line(best: str, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(run) / "tune-em.json"
    path.write_text(f'{{"best": {best}}}')
    try:
        assert main(["evaluate", run, "--rule", "em", "--count", "3"]) == 2
    finally:
        path.unlink()
    assert "tune-em.json holds no tuned settings" in capsys.readouterr().err


def test_progress_goes_to_stderr_unless_quiet(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", run, "--rule", "ddpm", "--count", "10", "--steps", "2", "--json"]
    assert main([*words, "--progress"]) == 0
    shown = capsys.readouterr()
    assert "sampled 10/10" in shown.err
    assert main([*words, "--progress", "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    for report in (shown.out, quiet.out):
        assert numbers(report)["count"] == 10


def test_clocks_are_short() -> None:
    seconds = (0.2, 59.0, 61.0, 3600.0, 86_399.0, 2600 * 3600.0)
    assert [clock(s) for s in seconds] == ["0s", "59s", "1m01s", "1h00m", "23h59m", "108 days"]


@pytest.mark.parametrize(
    ("boards", "steps", "said"),
    [
        ("50001", "1000000000", "letgo: at this speed it takes "),
        ("50001", "1", "the steps take about "),
        ("100", "1000000000", "letgo: at this speed it takes "),  # the first step may take long, too
    ],
)
def test_the_time_is_told_before_instances_are_drawn_and_steps_taken(
    boards: str,
    steps: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def draw(*_: object) -> None:
        raise LetgoError("drawn")

    monkeypatch.setattr("letgo.training.train.training_instances", draw)
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "run"), "--boards", boards, "--steps", steps]
    assert main(words) == 2
    *_, told, drawn = capsys.readouterr().err.splitlines()
    assert (told.startswith(said), drawn) == (True, "letgo: drawn")
    assert main([*words, "--max-seconds", "9"]) == 2  # it ends when it was told to
    assert said not in capsys.readouterr().err
    (tmp_path / "run" / "s0").mkdir(parents=True)
    (tmp_path / "run" / "s0" / "state.pt").touch()
    assert main([*words, "--seeds", "0,1"]) == 2  # it goes on
    assert said not in capsys.readouterr().err


def test_a_run_folder_beside_the_named_one_is_told_to_solve_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/laptops").mkdir(parents=True)
    Path("runs/laptops/config.json").touch()
    assert main(["solve", "runs/laptop", "a,b,."]) == 2
    said = "letgo: unknown task, model or run folder 'runs/laptop'; did you mean runs/laptops?\n"
    assert capsys.readouterr().err == said


def test_a_step_of_large_boards_is_timed_on_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(config: Config, *_: object, **__: object) -> None:
        raise LetgoError(f"{config.batch} of {config.build_task().cells} cells")

    monkeypatch.setattr("letgo.training.trainer.Trainer.of", taken)
    for name, said in (("maze", "2 of 900 cells"), ("sudoku", "32 of 81 cells"), ("sudoku-mini", "8 of 16 cells")):
        with pytest.raises(LetgoError, match=said):
            seconds_of_a_step(PRESETS[name], 1.0)


def test_a_run_without_a_step_compares_no_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "run"), "--boards", "20", "--steps", "2", "--batch", "4"]
    assert main([*words, "--max-seconds", "0", "--validate", "3"]) == 0
    assert "stopped at step 0 of 2 (starting took all of --max-seconds: give more)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "validation.json").exists()
    assert main([*words, "--validate", "3"]) == 0
    assert "validation, Euler, n=3" in capsys.readouterr().err


@pytest.mark.fast
def test_presets_and_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == list(PRESETS)
    assert main(["presets", "--json"]) == 0
    assert set(numbers(capsys.readouterr().out)) == set(PRESETS)
    assert main(["models", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)
    assert main(["models"]) == 0
    assert all(len(line) <= 80 for line in (listed + capsys.readouterr().out).splitlines())
    assert main(["models", "--long"]) == 0
    told = capsys.readouterr().out
    assert "\n  letgo train sudoku --out runs/sudoku --steps 222000 --decay 0.2\n" in told
    assert "  figure    tweedie 21: 0.972 [0.964, 0.978], n = 2000:\n" in told


def test_a_dry_run_prints_the_configuration_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "sudoku-mini", "--dry-run", "--out", str(tmp_path / "out"), "--steps", "7", "--decay", "0.5"]
    assert main([*words, "--full-gradient", "--optimizer", "muon", "--learning-rate", "0.01", "--seed", "9"]) == 0
    config = numbers(capsys.readouterr().out)
    changed = {"steps": 7, "decay": 0.5, "full_gradient": True, "optimizer": "muon", "learning_rate": 0.01, "seed": 9}
    assert config == {**PRESETS["sudoku-mini"].as_dict(), **changed}
    assert not (tmp_path / "out").exists()


def test_several_seeds_are_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "sudoku-mini", "--steps", "3", *FAST]
    assert main([*words, "--seeds", "0,1", "--out", str(tmp_path / "many")]) == 0
    assert sorted(p.name for p in (tmp_path / "many").iterdir()) == ["s0", "s1"]
    assert main([*words, "--seed", "1", "--out", str(tmp_path / "one")]) == 0
    one, first, second = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "many/s0", "many/s1")
    )
    assert one == second != first
    assert capsys.readouterr().out == ""


def test_several_seeds_cannot_share_what_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "sudoku-mini", "--steps", "3", "--seeds", "0,1", "--data", "-", "--out", str(tmp_path / "run")]
    assert main([*words, *FAST]) == 2
    assert "standard input can be read once" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_in_the_first_seed_does_not_begin_the_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.step

    def interrupted(self: Trainer) -> None:
        original(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "step", interrupted)
    words = ["train", "sudoku-mini", "--out", str(tmp_path), "--steps", "9", "--seeds", "3,4", *FAST]
    assert main(words) == 130
    assert [p.name for p in tmp_path.iterdir()] == ["s3"]
    assert f"stopped at step 1 of 9; saved in {tmp_path / 's3'}. To go on: letgo train" in capsys.readouterr().err


def test_where_seeds_are_faster_together_they_are_trained_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("letgo.training.train.uses_fused_blocks", lambda *_: True)
    original, seen = Trainer.step, set()

    def step(self: Trainer) -> None:
        original(self)
        seen.add(self.seeds)

    monkeypatch.setattr(Trainer, "step", step)
    words = ["train", "sudoku-mini", "--out", str(tmp_path), "--steps", "3", "--seeds", "0,1", *FAST]
    assert main([*words, "--validate", "4"]) == 0
    assert seen == {(0, 1)}
    said = capsys.readouterr().err
    for seed in (0, 1):
        assert f"seed {seed}, validation, Euler, n=4: EMA" in said
        chosen = json.loads((tmp_path / f"s{seed}" / "validation.json").read_text())
        assert (chosen["step"], chosen["count"]) == (3, 4)
        assert "--seeds 0,1" in chosen["command"]
        assert load_state(tmp_path / f"s{seed}" / "state.pt")["config"]["seed"] == seed
    assert f"the runs are in {tmp_path}" in said


def test_a_time_limit_ends_with_code_0_and_the_command_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "my run"), "--steps", "99", "--max-seconds", "0", *FAST]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    first, last = captured.err.splitlines()
    assert first == "training sudoku-mini on cpu, 1 thread: 99 steps of 4 boards"
    assert "stopped at step 0 of 99" in last
    assert f"To go on: letgo train sudoku-mini --out '{tmp_path}/my run' --steps 99" in captured.err
    assert load_state(tmp_path / "my run" / "state.pt")["step"] == 0


def test_one_time_limit_holds_for_all_seeds_together(tmp_path: Path) -> None:
    words = ["train", "sudoku-mini", "--out", str(tmp_path), "--steps", "9999", "--seeds", "0,1", *FAST]
    assert main([*words, "--max-seconds", "0.2", "--quiet"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["s0"]


def test_no_words_at_all_are_answered_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "letgo solve" in capsys.readouterr().out


def test_ctrl_c_elsewhere_is_one_line_and_code_130(
    run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Solver, "slots", interrupted)
    assert main(["solve", "--model", run, BLANK]) == 130
    assert capsys.readouterr().err == "letgo: interrupted\n"


HELP = """
import sys
from letgo.cli import main
from letgo.cli.main import VERBS
for words in (["--version"], ["--help"], *([verb, "--help"] for verb in VERBS)):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0
print(sorted({"torch", "numpy"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.fast
def test_help_does_not_wait_for_torch() -> None:
    done = python("-c", HELP)
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    assert f"letgo {__version__}" in done.stdout


def test_it_runs_as_a_module_from_the_source_tree(tmp_path: Path) -> None:
    done = python("-m", "letgo", "solve", "--model", str(tmp_path / "none"), "1", "--quiet")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("letgo: unknown model or run folder")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = """
import subprocess, sys
read = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
read.wait()
sys.exit(subprocess.run([sys.executable, "-m", "letgo", "presets"], stdout=read.stdin).returncode)
"""
    done = python("-c", code)
    assert done.returncode == 141
    assert done.stderr == ""


def through_shell(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command with redirections that only a shell can make."""
    code = f"""
import subprocess, sys
sys.exit(subprocess.run(["sh", "-c", '"$0" -m letgo {words}', sys.executable]).returncode)
"""
    return python("-c", code, **environment)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize(
    ("words", "environment"), [(f"solve sudoku-mini {DONE} --quiet", {}), ("models --json", {"PYTHONUNBUFFERED": "1"})]
)
def test_a_full_disk_is_said_in_a_line_and_is_no_unsolved_puzzle(words: str, environment: dict[str, str]) -> None:
    done = through_shell(f"{words} >/dev/full", **environment)
    assert done.returncode == 2
    assert done.stderr == "letgo: cannot write: No space left on device; check the disk and where the output goes\n"


@pytest.mark.parametrize("words", [f"solve sudoku-mini {DONE}", "--help"])
def test_a_closed_output_is_said_in_a_line(words: str) -> None:
    done = through_shell(f"{words} >&-")
    assert done.returncode == 2
    assert done.stderr == "letgo: standard output is closed; send it to a file, or to /dev/null\n"


def test_an_encoding_that_cannot_draw_is_said_in_a_line() -> None:
    done = python("-m", "letgo", "solve", "sudoku-mini", DONE, "--show", "--quiet", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr.startswith("letgo: the output's encoding, ascii, has no ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_nobody_can_read_on_stderr_does_not_change_the_exit_code() -> None:
    solved = through_shell(f"solve sudoku-mini {DONE} 2>&-")
    assert (solved.returncode, solved.stdout) == (0, f"{DONE}\n")
    refused = through_shell("solve nosuch 2>&-")
    assert (refused.returncode, refused.stdout) == (2, "")


def test_a_closed_input_is_said_in_a_line_and_only_where_it_is_read(tmp_path: Path) -> None:
    done = through_shell("solve sudoku-mini --file - --quiet <&-")
    assert done.returncode == 2
    assert done.stderr == "letgo: standard input is closed; pipe the puzzles in, or name a file\n"
    (tmp_path / "puzzles.txt").write_text(DONE)
    done = through_shell(f"solve sudoku-mini --file {tmp_path / 'puzzles.txt'} <&-")
    assert (done.returncode, done.stdout) == (0, f"{DONE}\n")


BARE = """
import sys
for name in ("scipy", "matplotlib", "diffusers", "huggingface_hub", "beartype", "ortools", "pytest", "hypothesis",
             "pandas", "fastapi", "tensorboard"):
    sys.modules[name] = None  # an import of it fails
from letgo.cli import main
run = ["--out", sys.argv[1], "--steps", "2", "--batch", "4", "--boards", "9", "--validate", "4"]
assert main(["train", "sudoku-mini", *run]) == 0
assert main(["evaluate", sys.argv[1], "--rule", "tweedie", "--count", "3", "--steps", "2", "--json"]) == 0
assert main(["tune", sys.argv[1], "--rule", "em", "--count", "5", "--steps", "2", "--sigmas", "0.1"]) == 0
"""


@pytest.mark.slow
def test_training_and_measuring_need_no_extra(tmp_path: Path) -> None:
    done = python("-c", BARE, str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "tune-em.json").exists()


@pytest.mark.journey
def test_the_whole_path_train_resume_evaluate_solve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "mini")
    words = f"train sudoku-mini --out {out} --steps 160 --batch 32 --boards 200 --warmup 30 --log-every 40".split()
    words += ["--validate", "8", "--device", "cpu"]
    original = Trainer.step

    def interrupted(self: Trainer) -> None:
        original(self)
        if self.steps_done == 70:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert main(words) == 130
    assert f"stopped at step 70 of 160; saved in {out}. To go on: letgo {' '.join(words)}\n" in capsys.readouterr().err
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "validation, Euler, n=8: EMA" in said.err
    assert "160 steps in" in said.err
    log = [json.loads(line) for line in (tmp_path / "mini" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [40, 80, 120, 160]
    assert log[-1]["loss"] < 0.7 * log[0]["loss"]
    chosen = json.loads((tmp_path / "mini" / "validation.json").read_text())
    assert chosen["weights"] in ("ema", "raw")
    assert (chosen["rule"], chosen["count"], chosen["step"]) == ("euler", 8, 160)
    assert (
        main(["evaluate", out, "--rule", "tweedie", "--regime", "14", "--count", "16", "--steps", "20", "--json"]) == 0
    )
    assert numbers(capsys.readouterr().out)["count"] == 16
    status = main(["solve", "--model", out, NEARLY, DONE, "--tries", "5"])
    first, second = capsys.readouterr().out.splitlines()
    assert (first, status) in [(DONE, 0), ("unsolved", 1)]  # how well it solves is not asked of so short a run
    assert second == DONE
    assert main(["generate", out, "--count", "2", "--steps", "5", "--quiet"]) == 0


def below(parser: argparse.ArgumentParser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield verb
                yield from below(verb)


@pytest.mark.fast
def test_every_option_says_what_it_does_and_what_holds_without_it_in_80_columns(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    whole = build_parser()
    for parser in (whole, *below(whole)):
        for line in parser.format_help().splitlines():
            assert len(line) <= 80, (parser.prog, line)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            assert action.help, (parser.prog, action.dest)
            takes_a_value = action.option_strings and action.nargs != 0 and not action.required
            said = "default" in action.help or "required" in action.help
            assert said or not takes_a_value, (parser.prog, action.option_strings, action.help)


def test_a_file_of_ones_own_is_run_when_the_command_speaks_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Running it imports torch, which takes seconds on a busy machine."""
    source = "from letgo import progress\nprint('speaks' if progress._speaking else 'silent')\ncheck = bool\n"
    (tmp_path / "own.py").write_text(source)
    assert main(["complete", "sudoku-mini", "rows.csv", "--valid", f"{tmp_path / 'own.py'}:check"]) == 2
    assert capsys.readouterr().out == "speaks\n"
