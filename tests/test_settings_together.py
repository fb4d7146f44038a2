"""Settings of an algorithm in combination: a run that is cut and continued is the undisturbed run, and nothing is lost or counted twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seegrad.config import Config
from seegrad.errors import RewardError
from seegrad.rewards.base import Rewards
from seegrad.rundir import RunDir
from seegrad.types import AdamParams, Example
from seegrad.update import check_settings
from seegrad.wiring import Parts
from tests import fakes
from tests.runs import differences, fake_run
from tests.test_cli import one_line, seegrad

HERE = str(Path(__file__))


def moody(example: Example, text: str) -> float:
    """Fails for every answer that begins with a 7, is blind to two kinds of question (flat groups), else looks at the first digit."""
    if text[:1] == "7":
        raise ValueError("seven")
    return 0.5 if example.meta["kind"] in (0, 1) else float(text[:1] == example.answer)


def settings(algorithm: Mapping[str, Any], tries: int = 0) -> Config:
    rollout = {"questions_per_step": 4, "group_size": 4, "max_tokens": 4, "dynamic_sampling": tries}
    return fakes.config(algorithm=dict(algorithm), rollout=rollout, reward={"parts": {f"{HERE}:moody": 1.0}})


class Falls(fakes.FakePolicy):
    """Its process ends at the fourth optimizer step: at the end of a step, or in the middle of one with several updates."""

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        if len(self.adams) == 3:
            raise KeyboardInterrupt
        return super().optim_step(adam)


CASES = [
    settings({}, tries=2),
    settings({"epochs": 2, "minibatches": 3, "mask_truncated": True}, tries=3),
    settings({"minibatches": 2, "correction": "tis", "kl_coef": 0.1, "kl_in": "reward", "advantage": "decoupled"}),
    settings({"epochs": 2, "old_logprobs": "recomputed", "advantage": "batch_std", "mask_truncated": True, "kl_coef": 0.1}, tries=2),
    settings({"minibatches": 3, "correction": "icepop", "advantage": "pass_at_k", "advantage_config": {"k": 2}}, tries=1),
]


@pytest.mark.parametrize("config", CASES, ids=range(len(CASES)))
def test_a_continued_run_is_the_undisturbed_run(config: Config, tmp_path: Path) -> None:
    check_settings(config)

    def parts() -> dict[str, Any]:
        return {"rewards": Rewards(dict(config.reward.parts), isolate=False), "advantage": Parts(config).advantage}

    fake_run(tmp_path / "whole", config, **parts())
    with pytest.raises(KeyboardInterrupt):
        fake_run(tmp_path / "cut", config, policy=Falls(), **parts())
    fake_run(tmp_path / "cut", config, resume=True, **parts())
    assert differences(tmp_path / "whole", tmp_path / "cut") == []
    _conserved(tmp_path / "whole", config)


def _conserved(path: Path, config: Config) -> None:
    """Counts of the metrics are those of the answers in the run directory."""
    failed = flat = 0
    for line in RunDir.open(path).metrics():
        rows = RunDir.open(path).rollouts(step=int(line["step"]))
        groups = [rows[first : first + 4] for first in range(0, len(rows), 4)]
        masked = [config.algorithm.mask_truncated and row["stop_reason"] == "length" for row in rows]
        credited = [any(row["advantage"] for row in group) for group in groups for _ in group]
        trained = [carries and not cut and row["error"] is None for row, cut, carries in zip(rows, masked, credited, strict=True)]
        assert line["train_datums"] == sum(trained)
        assert line["tokens/trained"] == sum(len(row["tokens"]) for row, used in zip(rows, trained, strict=True) if used)
        assert line["rollout/errors"] == sum(row["error"] is not None for row in rows)
        assert len({(row["group"], row["attempt"]) for row in rows}) == len(rows)
        assert all(row["trainer_logprobs"] == pytest.approx(row["sampler_logprobs"], abs=1e-5) for row in rows), "at the weights that sampled"
        if config.rollout.dynamic_sampling:
            assert line["rollout/resampled_groups"] == len(groups) - 4
            taught = sum(
                any(row["advantage"] and not cut for row, cut in zip(group, masked[4 * n : 4 * n + 4], strict=True)) for n, group in enumerate(groups)
            )
            assert line["rollout/groups_with_credit"] == taught
        failed += int(line["rollout/errors"])
        flat += round(line["degenerate_fraction"] * len(groups))
    assert failed and flat, "the case has failed graders and flat groups"


def test_a_step_without_credit_says_why(tmp_path: Path) -> None:
    config = settings({"mask_truncated": True}).model_copy(update={"steps": 2})
    rows = [row for row in fakes.examples() if row.meta["kind"] in (2, 3)]
    policy = fakes.FakePolicy()
    policy.logits_KV[:, fakes.STOP] = -50.0  # never stops: every answer is cut
    reporter = fakes.Quiet()
    fake_run(tmp_path / "run", config, policy=policy, reporter=reporter, examples=rows, rewards=Rewards(dict(config.reward.parts), isolate=False))
    assert policy.version == 0
    assert any("give no credit to an answer that may be trained on: nothing to learn from" in note for note in reporter.notes)


def test_when_nothing_can_be_graded_the_run_stops(tmp_path: Path) -> None:
    policy = fakes.FakePolicy()
    policy.logits_KV[:, 7] = 50.0
    config = settings({"epochs": 2, "minibatches": 2, "kl_coef": 0.1, "kl_in": "reward"})
    with pytest.raises(RewardError, match="not one of 16 answers"):
        fake_run(tmp_path / "run", config, policy=policy, rewards=Rewards(dict(config.reward.parts), isolate=False))
    assert policy.version == 0


QUICK = [
    "steps=2",
    "rollout.questions_per_step=2",
    "rollout.group_size=4",
    "rollout.max_tokens=6",
    "model.device=cpu",
    "save.every=1",
    "reward.parts.moods.py:moods=1.0",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a grader whose rewards differ, and a finished run `a`."""
    made = tmp_path_factory.mktemp("work")
    (made / "moods.py").write_text("def moods(example, text):\n    return sum(map(ord, text)) % 97 / 97\n", encoding="utf-8")
    seegrad("train", "count", *QUICK, "optimizer.learning_rate=0.01", "--out", "a", cwd=made)
    return made


WRONG = [
    ("algorithm.loss=ppo algorithm.loss_config={clip_hihg=0.1}", "did you mean 'clip_high'"),
    ("algorithm.loss=dro algorithm.loss_config={beta=-1}", "beta of at least 0"),
    ("algorithm.loss=losses.py:shapeless", "must return one loss per token"),
    ("algorithm.loss=losses.py:greedy", "needs the input 'value' in every datum"),
    ("algorithm.advantage=pass_at_k", "k=4; give a whole number from 1 to 1, below rollout.group_size=2"),
    ("algorithm.advantage_config={k=2}", "advantage 'mean_std' has no setting 'k'"),
    ("algorithm.correction=tsi", "did you mean 'tis'"),
    ("algorithm.correction_config={cap=2}", "correction 'none' has no setting 'cap'"),
    ("algorithm.kl_estimator=k1", "algorithm.kl_estimator"),
    ("algorithm.kl_coef=0.1 algorithm.reference=no/such/run", "algorithm.reference: no/such/run does not exist"),
    ("algorithm.kl_coef=0.1 algorithm.reference=a/metrics.jsonl", "algorithm.reference: a/metrics.jsonl is a file"),
]


@pytest.mark.parametrize(("words", "told"), WRONG, ids=range(len(WRONG)))
def test_wrong_settings_are_found_before_a_model_is_loaded(words: str, told: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seegrad.backends.local.backend.open_model", lambda model: pytest.fail("a model was opened"))
    losses = (
        "def shapeless(logprobs, inputs, config):\n    return logprobs.sum()\n\n\ndef greedy(logprobs, inputs, config):\n    return inputs['value']\n"
    )
    (folder / "losses.py").write_text(losses, encoding="utf-8")
    code = 6 if "shapeless" in words else 7 if "no/such" in words else 2
    line = one_line("train", "count", *QUICK, "rollout.group_size=2", *words.split(), "--out", "wrong", cwd=folder, code=code)
    assert told in line and not (folder / "wrong").exists()


def test_the_reference_may_be_a_run_a_checkpoint_or_a_model_folder(folder: Path) -> None:
    """Step 1 is at the base weights: the KL to the base is 0, to a run that has moved it is not, and the newest checkpoint is the run's."""
    seegrad("export", "a", "--out", "exported", cwd=folder)
    found = {}
    for name in ("", "a", "a/checkpoints/step-000002", "a/checkpoints/step-000001", "exported", "tiny"):
        reference = [f"algorithm.reference={name}"] if name else []
        words = ["steps=1", "algorithm.kl_coef=0.1", *reference, "--out", f"to-{name.replace('/', '-')}"]
        seegrad("train", "count", *QUICK, *words, cwd=folder)
        found[name] = json.loads((folder / words[-1] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])["trainer/kl"]
    assert found[""] == pytest.approx(0, abs=1e-9) and found["tiny"] == pytest.approx(0, abs=1e-9)
    assert found["a"] == found["a/checkpoints/step-000002"] > 1e-4
    assert found["exported"] == pytest.approx(found["a"], rel=1e-3)
    assert np.abs(found["a"] - found["a/checkpoints/step-000001"]) > 1e-6
