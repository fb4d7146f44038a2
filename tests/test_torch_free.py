"""The loop side in a process in which torch cannot be imported: train, resume, evaluate and report against a backend that needs none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "peft", "ray", "vllm", "accelerate"}:
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, Refuse())
from seegrad import registry
registry.TABLE["backend"]["echo"] = "tests.echo_backend:open_backend"
from seegrad.cli import main
sys.argv = ["seegrad", *sys.argv[1:]]
main()
"""


def seegrad(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *words], cwd=cwd, env=environment, capture_output=True, text=True)


def test_everything_but_the_local_backend_works_without_torch(tmp_path: Path) -> None:
    echo = ["model.backend=echo:"]
    settings = ["steps=2", "rollout.questions_per_step=4", "rollout.group_size=4", "eval.every=2", "eval.num_items=4", "save.every=1", *echo]
    commands = (
        ["train", "count", *settings, "--out", "runs/a"],
        ["train", "--resume", "runs/a"],
        ["eval", "runs/a", "-n", "20"],
        ["eval", "tiny", "-n", "20", *echo, "--out", "runs/a/eval/base.json"],
        ["report", "runs/a"],
        ["doctor", "count", "-n", "3", *echo],
        ["data", "show", "ground", "-n", "3"],
        ["sample", "runs/a", "-n", "1"],
        ["list"],
    )
    for words in commands:
        done = seegrad(*words, cwd=tmp_path)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "runs/a/report/report.md").is_file()


def test_the_refusal_works(tmp_path: Path) -> None:
    """The local backend needs torch, so that the test above would notice an import."""
    done = seegrad("eval", "tiny", "-n", "2", cwd=tmp_path)
    assert done.returncode != 0
    assert "torch must not be imported here" in done.stderr or "transformers must not be imported here" in done.stderr
