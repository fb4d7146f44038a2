"""The golden trace: 20 steps of the bundled model, small enough for a test. Regenerate it (and say why in the change) with:

python -m tests.golden_trace
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from seegrad.config import Config, load_config
from seegrad.families.folder import model_folder
from seegrad.rundir import RunDir, RunWriter
from seegrad.train import Outcome, Pipeline, train
from seegrad.wiring import Parts
from tests.fakes import Quiet

FILE = Path(__file__).parent / "golden" / "count-20.json"
# name of the metric: relative and absolute tolerance. Counts are exact, so that a token that is sampled differently shows at once.
TRACED = {
    "reward": (0.0, 1e-6),
    "train_datums": (0.0, 0.0),
    "tokens/prefill": (0.0, 0.0),
    "tokens/sampled": (0.0, 0.0),
    "trainer/loss": (1e-3, 1e-6),
    "trainer/kl": (1e-2, 1e-6),
    "trainer/grad_norm": (1e-3, 1e-5),
    "trainer/entropy": (1e-3, 1e-5),
    "trainer/learning_rate": (1e-9, 0.0),
}


def config(steps: int = 20) -> Config:
    """Counting with the vision tower, a KL term, warm-up and cosine: every part of the loop is in the trace."""
    overrides = [
        f"steps={steps}",
        "rollout.questions_per_step=2",
        "rollout.group_size=4",
        "rollout.max_tokens=24",
        "model.device=cpu",
        "algorithm.kl_coef=0.01",
        "optimizer.learning_rate=1e-3",
        "optimizer.schedule=cosine",
        "optimizer.warmup_steps=3",
        "eval.every=0",
        "save.every=10",
    ]
    return load_config("count", overrides)


def run(path: Path, settings: Config, *, resume: bool = False, **changes: Any) -> Outcome:
    """A real run in `path`, on one thread whatever the machine offers: sums are split among threads, and a tie may then fall the other way.

    `changes` replace parts of the pipeline.
    """
    torch.set_num_threads(1)
    parts = Parts(settings)
    with RunWriter.resume(path) if resume else RunWriter.create(path, settings) as writer:
        policy = parts.backend.create(settings.model, seed=settings.seed)
        made: dict[str, Any] = {
            "policy": policy,
            "renderer": parts.renderer,
            "rewards": parts.rewards,
            "advantage": parts.advantage,
            "examples": parts.examples(settings.data.train_split),
            "exact": True,
        }
        return train(Pipeline(**{**made, **changes}), settings, writer, Quiet())


def trace(path: Path) -> dict[str, Any]:
    """What is kept of a run: the model that it started from and the traced metrics of every step."""
    weights = (model_folder("tiny") / "model.safetensors").read_bytes()
    steps = [{name: line[name] for name in TRACED if name in line} for line in RunDir.open(path).metrics()]
    return {"model_sha256": hashlib.sha256(weights).hexdigest(), "steps": steps}


def problems(golden: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """In which steps and metrics two traces differ by more than the tolerances."""
    found = []
    if golden["model_sha256"] != now["model_sha256"]:
        return ["the bundled model has changed since the golden trace was made: python -m tests.golden_trace"]
    if len(golden["steps"]) != len(now["steps"]):
        found.append(f"{len(golden['steps'])} != {len(now['steps'])} steps")
    for step, (then, here) in enumerate(zip(golden["steps"], now["steps"], strict=False), 1):
        if then.keys() != here.keys():
            found.append(f"step {step}: metrics {sorted(then.keys() ^ here.keys())} in one only")
        for name in then.keys() & here.keys():
            relative, absolute = TRACED[name]
            if abs(then[name] - here[name]) > absolute + relative * abs(then[name]):
                found.append(f"step {step}: {name} was {then[name]}, is {here[name]}")
    return found


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        run(path, config())
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(trace(path), indent=1) + "\n")
    print(f"written: {FILE}")


if __name__ == "__main__":
    main()
