"""What `seegrad eval` does: which items, how often, where the answers are kept, what is refused, and what a person sees meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest

from seegrad import registry
from seegrad.cli import main
from seegrad.errors import RunError, UsageError
from seegrad.evaluate import EvalResult
from seegrad.exam import Counter, Exam, read_exam, sit, split_of, told
from seegrad.lab_json import to_lab_json
from seegrad.wiring import Parts, Target, find_target


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and a backend that needs no model."""
    monkeypatch.setitem(registry.TABLE["backend"], "echo", "tests.echo_backend:open_backend")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def target(*settings: str) -> Target:
    return find_target("tiny", overrides=["model.backend=echo:", *settings])


def examined(exam: Exam) -> EvalResult:
    parts = Parts(exam.target.config)
    try:
        return sit(exam, parts)
    finally:
        parts.close()


def command(*words: str, code: int = 0) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["seegrad", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code == code, err.getvalue()
    return out.getvalue() if code == 0 else err.getvalue()


def test_answers_pictures_and_the_labs_form_are_kept(place: Path) -> None:
    exam = Exam(target("eval.samples=3", "eval.temperature=0.5"), "dev", 5, (2, 3), lab_json=Path("lab.json"))
    result = examined(exam)
    assert exam.path == Path("runs/base-tiny/eval/count-dev-k3-s2-t0.5.json")
    assert EvalResult.from_json(exam.path) == result and len(result.items) == 5 * 3 * 2
    assert json.loads(Path("lab.json").read_text()) == to_lab_json(result)
    assert len(list(Path("runs/base-tiny/images").glob("*.png"))) == 5
    assert told(result)[0] == "tiny on 5 items of count/dev, 6 answers each at temperature 0.5 (2 seeds)"


def test_how_many_items_are_asked(place: Path) -> None:
    Path("mine.py").write_text(
        "from seegrad.types import Example\n\n\ndef rows(split, data):\n    return [Example(str(n), '1+1?', '2') for n in range(9)]\n"
    )
    asked = target("eval.num_items=7", "data.name=mine.py:rows", "reward.parts={ format = 1.0 }")
    assert len(examined(Exam(asked, "dev")).items) == 7 and len(examined(Exam(asked, "dev", 3)).items) == 3
    assert len(examined(Exam(asked, "dev", 0, out=Path("all.json"))).items) == 9
    assert Exam(asked, "dev").path == Path("runs/base-tiny/eval/rows-dev.json")  # once and greedily needs no word
    assert told(EvalResult.from_json(Path("all.json")))[0] == "tiny on 9 items of mine.py:rows/dev, greedily"


def test_what_cannot_be_done_is_refused_before_the_model_is_opened(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the model was opened")

    monkeypatch.setattr("tests.echo_backend.EchoBackend.sampler", refuse)
    Path("file").write_text("")
    for exam, error in (
        (Exam(target(), seeds=(0, 1)), UsageError),
        (Exam(target(), out=Path("file/x.json")), RunError),
        (Exam(target(), lab_json=Path("file/x.json")), RunError),
    ):
        with pytest.raises(error):
            sit(exam, Parts(exam.target.config))
    with pytest.raises(UsageError, match=r"eval\.temperature: eval\.samples is over 1, and at temperature 0"):
        target("eval.samples=4")
    assert target("eval.samples=4", "eval.temperature=0.1").config.eval.samples == 4


def test_the_command_asks_as_told_and_reads_what_is_there(place: Path) -> None:
    words = ("eval", "tiny", "model.backend=echo:", "-n", "6", "-k", "2", "--temperature", "1", "--seeds", "2", "--seed", "5")
    printed = command(*words, "--lab-json", "one.json")
    path = Path("runs/base-tiny/eval/count-test-k2-s2-t1.json")
    assert f"every item: {path}" in printed and "pass@4" in printed and "accuracy (mean@4)" in printed
    assert {item.seed for item in EvalResult.from_json(path).items} == {5, 6}
    again = command("eval", str(path), "--lab-json", "two.json")
    assert again.splitlines() == printed.splitlines()[:-1] and Path("one.json").read_bytes() == Path("two.json").read_bytes()
    assert "--all and --num-items 6" in command(*words, "--all", code=2)
    assert "it is read, not made, so that --num-items, --seeds cannot be used" in command("eval", str(path), "-n", "3", "--seeds", "2", code=2)
    with pytest.raises(UsageError, match=r"eval\.samples=3"):
        read_exam(path, ["eval.samples=3"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_a_line_now_and_then_elsewhere() -> None:
    seconds = iter(range(0, 1000, 4))
    plain = io.StringIO()
    show = Counter("answered", plain, clock=lambda: float(next(seconds)))
    for done in range(10, 101, 10):
        show(done, 100)
    assert plain.getvalue().splitlines() == ["answered 30/100, left 0:28", "answered 60/100, left 0:16", "answered 90/100, left 0:04"]
    screen = Terminal()
    show = Counter("answered", screen, clock=lambda: 0.0)
    show(50, 100)
    show(100, 100)
    assert screen.getvalue().count("\r") == 2 and screen.getvalue().count("\n") == 1 and screen.getvalue().endswith("\n")


def test_which_split_is_answered(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text("question,answer\n" + "".join(f"{n}+1?,{n + 1}\n" for n in range(9)))
    table = ("data.name=table", "data.path=rows.csv", "data.train_split=train[:5]", "eval.split=train[5:]", "reward.parts={ format = 1.0 }")
    config = target(*table).config
    assert split_of(None, (), config) == "train[5:]" and "table has no split 'test'; taken is eval.split: train[5:]" in capsys.readouterr().err
    assert split_of("train", (), config) == "train" and split_of(None, table, config) == "train[5:]"
    assert split_of(None, (), target().config) == "test" and split_of(None, ["eval.split=dev"], target("eval.split=dev").config) == "dev"
    with pytest.raises(UsageError, match=r"--split test and eval\.split=train\[5:\] say different things"):
        split_of("test", table, config)
    with pytest.raises(UsageError, match=r"rows\.csv has no split 'test'"):
        split_of(None, (), target(*table[:2], "eval.split=nothing").config)
    assert not capsys.readouterr().err
    printed = command("eval", "tiny", "model.backend=echo:", *table)
    assert "tiny on 4 items of table/train[5:], greedily" in printed and "every item: runs/base-tiny/eval/table-train-5..end.json" in printed


def test_what_has_no_grade_is_told_before_any_rate(place: Path) -> None:
    Path("mine.py").write_text("def half(example, text):\n    if int(example.answer) % 2:\n        raise KeyError('unit')\n    return 1.0\n")
    Path("rows.csv").write_text("question,answer\n" + "".join(f"{n}+1?,{n + 1}\n" for n in range(4)))
    table = ("data.name=table", "data.path=rows.csv", "reward.isolate=false", 'reward.parts={"mine.py:half" = 1.0}')
    lines = command("eval", "tiny", "model.backend=echo:", *table, "--split", "train").splitlines()
    assert " ".join(lines[1].split()) == "without a grade 2 of 4, left out of every rate: 2 grader failed"
    assert "KeyError: 'unit'" in lines[2] and lines[3].split()[0] == "accuracy"


def test_a_file_is_no_model(place: Path) -> None:
    Path("run").mkdir()
    Path("run/notes.toml").write_text("")
    assert "run/notes.toml is a file; give the run directory or the model folder: run" in command("eval", "run/notes.toml", code=2)


def test_more_rows_than_a_sheet_holds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seegrad.contact.MAX_EXAMPLES", 3)
    printed = command("data", "show", "count", "-n", "9").splitlines()
    assert len(printed) == 1 + 9 + 1 and printed[-1] == "pictures: runs/count-train.png (of the first 3 rows)"
    Path("rows.csv").write_text("problem,answer\n1+1?,2\n")
    assert "columns: prompt: problem, answer: answer" in command("data", "show", "table", "data.path=rows.csv")
