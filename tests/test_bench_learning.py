"""The learning bench: what is finished is not run again, other settings are refused, failures are told, the README keeps its other text."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import learning
from seegrad.config import load_config
from seegrad.errors import RunError
from seegrad.rundir import RunWriter
from tests.reporting import answer, evaluation, examples

OPTIONS = ["--recipes", "count", "--seeds", "0", "1", "--items", "30"]


def finished(out: Path, seed: int, every: int) -> None:
    """What the bench leaves of one seed: a finished run with the evaluation of a model that is wrong on every n-th item."""
    rows = examples(count=30)
    folder = out / "count" / f"seed-{seed}"
    with RunWriter.create(folder, load_config("count", [f"seed={seed}"])) as run:
        run.write_status("finished", 100, 100)
    evaluation(rows, answer(rows, lambda n: n % every != 0), name="test", version=100).to_json(folder / "eval" / "test.json")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    rows = examples(count=30)
    base = answer(rows, lambda n: n % 2 == 0, lambda n: n % 3 != 0)
    evaluation(rows, base, name="base").to_json(tmp_path / "count" / "eval" / "base.json")
    finished(tmp_path, 0, 10)
    finished(tmp_path, 1, 15)
    return tmp_path


def test_finished_runs_are_only_read(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learning.main([*OPTIONS, "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert not told.err and "seegrad train" not in told.out
    lines = (out / "learning.md").read_text().splitlines()
    assert len(lines) == 6 and lines[2].startswith("| `count` | 0 | 33.3 % | 90.0 % | +56.7 (") and "66.7 % → 100.0 %" in lines[2]
    assert lines[3].startswith("| `count` | 1 | 33.3 % | 93.3 % |")
    assert lines[5].startswith("2 of 2 runs gain") and "the same 30 test questions" in lines[5]
    assert (out / "count" / "seed-1" / "report" / "report.md").is_file()


def test_a_run_with_other_settings_is_not_passed_off_as_the_one_asked_for(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learning.main([*OPTIONS, "--out", str(out), "steps=7"]) == 1
    assert "made with other settings" in capsys.readouterr().err


def test_a_failing_command_is_told_and_the_rest_is_kept(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learning.main(["--recipes", "count", "nonsense", "--seeds", "0", "--items", "30", "--out", str(out)]) == 1
    told = capsys.readouterr()
    assert "no recipe 'nonsense'" in told.err and "| `count` | 0 |" in told.out
    assert "nonsense" in (out / "log.txt").read_text()


def test_nothing_finished_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learning.main(["--recipes", "nonsense", "--seeds", "0", "--out", str(tmp_path)]) == 1
    assert "no run under" in capsys.readouterr().err


def test_the_readme_is_rewritten_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"# A\n\n{learning.START}\nold\n{learning.END}\n\nend\n")
    learning.write_between(path, "| new |")
    learning.write_between(path, "| newer |")
    assert path.read_text() == f"# A\n\n{learning.START}\n| newer |\n{learning.END}\n\nend\n"
    for text in ("no markers", f"{learning.END}{learning.START}", f"{learning.START}{learning.START}{learning.END}"):
        path.write_text(text)
        with pytest.raises(RunError, match="once each"):
            learning.write_between(path, "x")
        assert path.read_text() == text


def test_both_languages_have_the_same_columns(out: Path) -> None:
    plan = learning.Plan(out, ("count",), (0, 1), 30, (), 1)
    rows = learning.collect(plan)
    english, chinese = (learning.render(rows, 30, page).splitlines() for page in learning.HEADERS)
    assert english[1:4] == chinese[1:4] and english[0].count("|") == chinese[0].count("|") and "2 次训练中有 2 次" in chinese[-1]


def test_quick_never_writes_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        learning.main(["--quick", "--write-readme"])
    assert "--quick measures nothing" in capsys.readouterr().err


def test_quick_settings_are_valid() -> None:
    for recipe in learning.RECIPES:
        assert load_config(recipe, learning.QUICK).steps == 2


@pytest.mark.soak
def test_quick_runs_the_real_commands_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--recipes", "count", "ground", "--seeds", "0", "--jobs", "2", "--out", str(tmp_path / "learning")]
    assert learning.main(arguments) == 0
    first = capsys.readouterr().out
    assert first.count("seegrad train") == 2 and "| `ground` | 0 |" in first
    assert learning.main(arguments) == 0
    assert "seegrad train" not in capsys.readouterr().out
