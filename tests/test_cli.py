"""The real command, as a person types it: one-line errors, exit codes, and every verb on the bundled model."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from seegrad.cli import main
from seegrad.config import load_config
from seegrad.errors import RunError, UsageError
from seegrad.launch import first_difference, read_launch
from seegrad.wiring import find_target

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["rollout.questions_per_step=2", "rollout.group_size=2", "rollout.max_tokens=8", "eval.num_items=4", "save.every=1"]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "110", **extra}


def seegrad(*words: str, cwd: Path, code: int = 0, want: str | None = None) -> str:
    """The whole command in this process (so that torch is imported once); returns standard output, or standard error when a code is expected."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["seegrad", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code == code, f"{words}: exit {stopped.value.code}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue() if (want or ("out" if code == 0 else "err")) == "out" else err.getvalue()


def one_line(*words: str, cwd: Path, code: int) -> str:
    """The error of a command: exactly one line that starts with `error:`, and no traceback."""
    lines = [line for line in seegrad(*words, cwd=cwd, code=code).splitlines() if line.strip()]
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: "), lines
    return lines[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `runs/a` is a finished run of two steps."""
    folder = tmp_path_factory.mktemp("work")
    printed = seegrad("train", "count", "steps=2", "eval.every=2", *QUICK, "--out", "runs/a", cwd=folder)
    assert "finished after step 2: runs/a" in printed
    return folder


def test_help_answers_at_once_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "seegrad", "--help"]
    imported = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert "typer" in imported
    assert not [line for line in imported.splitlines() if line.rpartition("|")[2].strip().partition(".")[0] in ("torch", "transformers", "numpy")]
    seconds = []
    for _ in range(5):  # processor time: what the command costs, whatever else the machine does meanwhile
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "seegrad", "--help"], env=environment(), cwd=tmp_path, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert statistics.median(seconds) < 0.5, seconds


def test_mistakes_name_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'steps'?" in one_line("train", "count", "stpes=3", cwd=tmp_path, code=2)
    assert "did you mean 'count'?" in one_line("train", "cuont", cwd=tmp_path, code=2)
    assert "'optimizer.learning_rate'" in one_line("train", "count", "learning_rate=1", cwd=tmp_path, code=2)
    assert "did you mean 'mean_std'?" in one_line("train", "count", "algorithm.advantage=meanstd", cwd=tmp_path, code=2)
    assert "did you mean 'ppo'?" in one_line("train", "count", "algorithm.loss=pppo", cwd=tmp_path, code=2)
    assert "did you mean 'iou'?" in one_line("train", "count", "reward.parts={iuo = 1.0}", cwd=tmp_path, code=2)
    assert "train" in one_line("trian", cwd=tmp_path, code=2)
    assert "--foo" in one_line("train", "--foo", cwd=tmp_path, code=2)
    assert "key=value" in one_line("train", "count", "steps", cwd=tmp_path, code=2)
    assert not (tmp_path / "runs").exists(), "a wrong command leaves nothing behind"


def test_errors_have_their_exit_code(tmp_path: Path) -> None:
    assert "'tiny'" in one_line("eval", "nothing-like-this", cwd=tmp_path, code=6)
    assert "does not exist" in one_line("eval", "runs/nothing", cwd=tmp_path, code=7)
    assert "no run" in one_line("train", "--resume", cwd=tmp_path, code=7)
    assert "not a run" in one_line("train", "--resume", "elsewhere", cwd=tmp_path, code=7)
    assert "seegrad train count" in one_line("report", cwd=tmp_path, code=7)
    assert "split" in one_line("data", "show", "count", "--split", "nothing", cwd=tmp_path, code=3)
    (tmp_path / "text.png").write_text("not a picture")
    assert "text.png" in one_line("sample", "--image", "text.png", "--question", "what?", cwd=tmp_path, code=3)
    assert "question" in one_line("sample", "--image", "text.png", cwd=tmp_path, code=2)


def test_debug_shows_the_traceback_anywhere_on_the_line(tmp_path: Path) -> None:
    for words, code, shown in ((["train", "nope"], 2, False), (["train", "nope", "--debug"], 1, True), (["--debug", "train", "nope"], 1, True)):
        done = subprocess.run([sys.executable, "-m", "seegrad", *words], cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert done.returncode == code
        assert ("Traceback" in done.stderr) == shown
        assert "did you mean" in done.stderr or "known:" in done.stderr


def test_dry_run_prints_what_would_run(tmp_path: Path) -> None:
    printed = seegrad("train", "steps=7", "--model", "somewhere/model", "--dry-run", cwd=tmp_path)
    (tmp_path / "mine.toml").write_text(printed)
    config = load_config(str(tmp_path / "mine.toml"))
    assert (config.steps, config.model.base) == (7, "somewhere/model")
    assert seegrad("train", "mine.toml", "--dry-run", cwd=tmp_path) == printed
    assert not (tmp_path / "runs").exists()


def test_smoke_run_saves_nothing_and_shows_answers(tmp_path: Path) -> None:
    words = ("steps=1", "rollout.questions_per_step=1", "rollout.group_size=4", "--no-save", "--show-samples")
    printed = seegrad("train", "count", *words, cwd=tmp_path)
    assert printed.count("reward") >= 5, printed  # four answers and the line of the step
    assert "step 1/1" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_reward_data_set_and_advantage_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from seegrad.types import Example\n"
        "def rows(split, data):\n"
        "    return [Example(id=f'{split}-{n}', question=f'say {n}', answer=str(n)) for n in range(4)]\n"
        "def short(example, text):\n"
        "    return 1.0 / (1 + len(text))\n"
        "def centred(rewards_G):\n"
        "    return rewards_G - rewards_G.mean()\n"
        "def broken(example, text):\n"
        "    return [][0]\n"
    )
    words = ("data.name=mine.py:rows", "algorithm.advantage=mine.py:centred", "eval.every=0", *QUICK)
    printed = seegrad("train", "count", "steps=1", 'reward.parts={"mine.py:short" = 1.0}', *words, "--no-save", cwd=tmp_path)
    assert "step 1/1" in printed
    error = one_line("train", "count", "steps=1", 'reward.parts={"mine.py:broken" = 1.0}', *words, "--no-save", cwd=tmp_path, code=4)
    assert "mine.py:9" in error
    assert "train-" in error


def test_run_evaluate_report(run: Path) -> None:
    assert "every item: runs/a/eval/test.json" in seegrad("eval", "runs/a", "-n", "6", cwd=run)
    seegrad("eval", "tiny", "--recipe", "count", "-n", "6", "rollout.max_tokens=8", "--out", "runs/a/eval/base-test.json", cwd=run)
    trained, base = (json.loads((run / f"runs/a/eval/{name}.json").read_text()) for name in ("test", "base-test"))
    assert (trained["version"], base["version"]) == (2, 0)
    assert [item["id"] for item in trained["items"]] == [item["id"] for item in base["items"]]
    assert len(trained["items"]) == 6
    assert all((run / "runs/a/images" / f"{item['images'][0]}.png").is_file() for item in trained["items"])
    assert "report: runs/a/report/report.md" in seegrad("report", cwd=run)
    assert (run / "runs/a/report/rates.png").is_file()
    assert "report:" in seegrad("report", "runs/a/eval/base-test.json", "runs/a/eval/test.json", "--out", "elsewhere", cwd=run)


def test_every_form_of_a_target(run: Path) -> None:
    checkpoint = run / "runs/a/checkpoints/step-000001"
    assert find_target(str(run / "runs/a")).step == 2
    assert find_target(str(checkpoint)).weights == checkpoint / "weights"
    assert find_target(str(checkpoint / "weights")).step == 1
    assert find_target(str(run / "runs/a"), overrides=["rollout.max_tokens=9"]).config.rollout.max_tokens == 9
    assert find_target(str(run / "runs/a"), recipe="ground").config.reward.parts.keys() == {"iou", "format"}
    assert find_target("tiny", recipe="choice").config.data.name == "choice"
    assert find_target("tiny").config.data.name == "count"
    with pytest.raises(RunError, match="neither a run"):
        find_target(str(run))


def test_a_damaged_checkpoint_is_named(run: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", str(run / "runs"), str(tmp_path)], check=True)
    path = tmp_path / "runs/a/checkpoints/step-000002/weights/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"step-000002 is damaged.*model.safetensors"):
        find_target(str(tmp_path / "runs/a/checkpoints/step-000002"))
    assert find_target(str(tmp_path / "runs/a")).step == 1, "a run falls back to its newest whole checkpoint"


def test_resume_forms(run: Path) -> None:
    finished = "runs/a is finished (2 steps)"
    assert finished in seegrad("train", "--resume", cwd=run)
    assert finished in seegrad("train", "--resume", "runs/a", cwd=run)
    assert finished in seegrad("train", "count", "steps=2", "eval.every=2", *QUICK, "--resume", "--out", "runs/a", cwd=run)
    assert "steps: 2 → 3" in one_line("train", "--resume", "runs/a", "steps=3", cwd=run, code=2)
    assert "already holds a run" in one_line("train", "count", *QUICK, "--out", "runs/a", cwd=run, code=7)


def test_resume_of_a_directory_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launch = read_launch(["count", "steps=5"], out=tmp_path / "new", resume=True)
    assert (launch.continues, launch.path, launch.config.steps) == (False, tmp_path / "new", 5)
    with pytest.raises(UsageError, match="two run directories"):
        read_launch(["a"], out=tmp_path / "b", resume=True)
    with pytest.raises(UsageError, match="one recipe"):
        read_launch(["count", "choice"])
    with pytest.raises(RunError, match="'count'"):
        read_launch(["count"], resume=True)


def test_first_difference_sees_every_setting() -> None:
    base = load_config("count")
    assert first_difference(base, load_config("count", ["out=elsewhere"])) is None
    for override in ("seed=9", "model.train_vision=false", "reward.parts={count = 2.0}", "rollout.stop=['x']", "algorithm.kl_coef=0.5"):
        found = first_difference(base, load_config("count", [override]))
        assert found is not None
        assert found.startswith(override.partition("=")[0])


def test_sample_prints_answers_with_logprobs(run: Path) -> None:
    printed = seegrad("sample", "runs/a", "-n", "2", "--tokens", cwd=run)
    assert printed == seegrad("sample", "runs/a", "-n", "2", "--tokens", cwd=run), "the same seed gives the same answers"
    assert printed != seegrad("sample", "runs/a", "-n", "2", "--tokens", "--seed", "1", cwd=run)
    assert "36 of them picture" in printed
    picture = next((run / "runs/a/images").iterdir())
    printed = seegrad("sample", "--image", str(picture), "--question", "图中有几个圆形？", "-n", "1", "--temperature", "0", cwd=run)
    assert "gold: unknown" in printed


def test_doctor_passes_and_fails(tmp_path: Path) -> None:
    printed = seegrad("doctor", "count", "-n", "3", "rollout.max_tokens=8", cwd=tmp_path)
    assert "all is well" in printed
    assert "FAIL" not in printed
    (tmp_path / "mine.py").write_text("def deaf(example, text):\n    return 0.0\n")
    failed = seegrad("doctor", "-n", "3", "rollout.max_tokens=8", 'reward.parts={"mine.py:deaf" = 1.0}', cwd=tmp_path, code=1, want="out")
    assert "FAIL  gold answers: 0 of 6 are graded as right" in failed and "change: choose the part" in failed


def test_data_and_list(tmp_path: Path) -> None:
    assert "contact" not in seegrad("data", "list", cwd=tmp_path)
    listed = seegrad("data", "list", cwd=tmp_path)
    assert all(text in listed for text in ("\nground  ", "splits: pretrain, train, dev, test, ood · drawn", "splits: train 3,503, dev 748, test 100"))
    printed = seegrad("data", "show", "choice", "-n", "5", cwd=tmp_path)
    assert printed.count("#") == 5
    assert (tmp_path / "runs/choice-train.png").read_bytes().startswith(b"\x89PNG")
    listed = seegrad("list", cwd=tmp_path)
    for word in ("choice, clevr-count, count", "geo3k, geoqa, ground", "importance_sampling", "mean_std", "qwen3_vl", "none yet"):
        assert word in listed


def test_export_answers_like_the_run(run: Path) -> None:
    seegrad("export", "runs/a", "--out", "merged", cwd=run)
    words = ("-n", "2", "--temperature", "0", "--recipe", "count")
    assert seegrad("sample", "merged", *words, cwd=run) == seegrad("sample", "runs/a", *words, cwd=run)
    assert "not an empty folder" in one_line("export", "runs/a", "--out", "merged", cwd=run, code=2)
    assert "base model" in one_line("export", "tiny", "--out", "other", cwd=run, code=2)


def test_a_run_of_adapters_keeps_a_peft_folder_and_exports_merged(tmp_path: Path) -> None:
    """The recipes train all weights; the other way to train goes through the same commands."""
    words = ("model.train=lora", "model.lora_rank=4", "model.train_vision=false", "steps=1", "eval.every=0")
    seegrad("train", "count", *QUICK, *words, "--out", "runs/l", cwd=tmp_path)
    weights = tmp_path / "runs/l/checkpoints/step-000001/weights"
    assert sorted(path.name for path in weights.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    seegrad("export", "runs/l", "--out", "merged", cwd=tmp_path)
    ask = ("-n", "2", "--temperature", "0", "--recipe", "count")
    assert seegrad("sample", "merged", *ask, cwd=tmp_path) == seegrad("sample", "runs/l", *ask, cwd=tmp_path)


def test_ctrl_c_keeps_the_run_and_exits_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seegrad", "train", "count", "steps=500", *QUICK, "eval.every=0", "--out", "runs/b"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 2/"):
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, out
    assert "continue: seegrad train --resume runs/b" in out
    status = json.loads((tmp_path / "runs/b/status.json").read_text())
    assert status["state"] == "interrupted"
    assert find_target(str(tmp_path / "runs/b")).step == status["step"] >= 2


def test_ctrl_c_during_start_up_is_130_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seegrad", "eval", "-n", "2000"]
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background job, as this test may be, inherits that it is ignored
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    try:
        for _ in range(3):  # pressed again when nothing happens: Python loses an interrupt that falls into a weak-reference callback of an import
            time.sleep(1.5)  # somewhere in the imports or the first batch
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
                break
    finally:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert [line for line in errors.splitlines() if line.strip()][-1] == "interrupted", errors
    assert list(tmp_path.iterdir()) == []
