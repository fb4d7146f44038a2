"""The loop, on a policy that fits in the head; and the same run twice, whole or in two halves."""

from __future__ import annotations

import inspect
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seegrad import gather as gather_module
from seegrad import progress
from seegrad import train as train_module
from seegrad.config import OptimizerConfig
from seegrad.errors import BackendError, RewardError
from seegrad.metrics import check_on_policy
from seegrad.rundir import RunDir, RunWriter
from seegrad.schedule import learning_rate_factor, question_positions, sampling_seeds
from seegrad.train import train
from seegrad.types import Example
from tests import fakes
from tests.runs import differences, fake_pipeline, fake_run


def test_the_loop_fits_on_one_screen() -> None:
    assert len(inspect.getsource(train_module.train).splitlines()) <= 60


def test_every_epoch_asks_each_row_once_in_a_new_order() -> None:
    asked = [position for step in range(1, 13) for position in question_positions(10, 5, step, seed=1)]
    epochs = [asked[first : first + 10] for first in range(0, 60, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    assert asked != [position for step in range(1, 13) for position in question_positions(10, 5, step, seed=2)]
    # Steps that cross the end of an epoch, and steps larger than the data set, lose nothing either.
    for num_questions in (3, 7, 25):
        counts = Counter(position for step in range(1, 11) for position in question_positions(10, num_questions, step, seed=0))
        assert max(counts.values()) - min(counts.values()) <= 1 and sum(counts.values()) == 10 * num_questions


def test_no_two_questions_of_a_run_share_a_seed() -> None:
    seeds = [seed for step in range(1, 101) for seed in sampling_seeds(32, step, seed=0)]
    assert len(set(seeds)) == 3200 and min(seeds) >= 0 and max(seeds) < 2**63
    assert sampling_seeds(4, 7, seed=0) == sampling_seeds(8, 7, seed=0)[:4]
    assert not set(seeds) & set(sampling_seeds(32, 1, seed=1))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.5, 1, 1, 1, 1, 1]), ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25]), ("cosine", [0.5, 1, 1, 0.853553, 0.5, 0.146447])],
)
def test_learning_rate_schedule(schedule: str, expected: list[float]) -> None:
    settings = OptimizerConfig.model_validate({"schedule": schedule, "warmup_steps": 2})
    assert [learning_rate_factor(settings, step, 6) for step in range(1, 7)] == pytest.approx(expected, abs=1e-6)
    assert learning_rate_factor(OptimizerConfig.model_validate({"schedule": schedule}), 1, 1) == 1


def test_the_fake_policy_learns() -> None:
    reporter = fakes.Quiet()
    train(fake_pipeline(), fakes.config(steps=40), None, reporter)
    rewards = [metrics["reward"] for _, metrics in reporter.lines]
    assert np.mean(rewards[:5]) < 0.3 and np.mean(rewards[-5:]) > 0.5


def flat_group(rollouts: list[dict[str, Any]], rollout: dict[str, Any]) -> bool:
    """Whether all attempts at the question of `rollout` got one reward."""
    return len({other["reward"] for other in rollouts if other["group"] == rollout["group"]}) == 1


def test_metrics_are_what_the_rollouts_say(tmp_path: Path) -> None:
    policy = fakes.FakePolicy()
    fake_run(tmp_path / "run", fakes.config(), policy=policy)
    run = RunDir.open(tmp_path / "run")
    metrics = run.metrics()
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    for line in metrics:
        rollouts = run.rollouts(line["step"])
        trained = [rollout for rollout in rollouts if rollout["advantage"] != 0 or not flat_group(rollouts, rollout)]
        flat = [entry.flat for entry in run.index() if entry.step == line["step"]]
        part = next(name for name in rollouts[0]["scores"] if name.endswith("first_digit"))
        expected = {
            "reward": np.mean([rollout["reward"] for rollout in rollouts]),
            f"reward/{part}": np.mean([rollout["scores"][part] for rollout in rollouts]),
            "format_rate": np.mean([rollout["parsed"] is not None for rollout in rollouts]),
            "accuracy": np.mean([rollout["correct"] for rollout in rollouts]),
            "degenerate_fraction": np.mean(flat),
            "train_datums": len(trained),
            "rollout/completion_tokens_mean": np.mean([len(rollout["tokens"]) for rollout in rollouts]),
            "rollout/truncated_fraction": np.mean([rollout["stop_reason"] == "length" for rollout in rollouts]),
            "rollout/errors": 0,
            "tokens/prefill": 4 * 6,
            "tokens/sampled": sum(len(rollout["tokens"]) for rollout in rollouts),
            "tokens/trained": sum(len(rollout["tokens"]) for rollout in trained),
            "trainer/entropy": np.mean([value for rollout in trained for value in rollout["entropy"]]),
        }
        assert {name: line[name] for name in expected} == pytest.approx(expected, rel=1e-5)
        assert len(trained) == 4 * flat.count(False)
        assert line["trainer/ratio_max_deviation"] <= 1e-6
        assert {
            "trainer/loss",
            "trainer/grad_norm",
            "trainer/learning_rate",
            "time/sample",
            "time/train",
            "time/step",
            "tokens_per_second",
        } <= line.keys()
        assert {rollout["policy_version"] for rollout in rollouts} == {line["step"] - 1}
        for rollout in rollouts:  # the untrained ones are scored too
            assert len(rollout["trainer_logprobs"]) == len(rollout["entropy"]) == len(rollout["tokens"])
            assert np.allclose(rollout["trainer_logprobs"], rollout["sampler_logprobs"], atol=1e-6)
    assert [adam.learning_rate for adam in policy.adams] == pytest.approx([line["trainer/learning_rate"] for line in metrics])
    assert run.status().state == "finished" and run.status().step == 6
    assert [(checkpoint.step, checkpoint.has_state) for checkpoint in run.checkpoints()] == [(2, False), (4, True), (6, True)]
    assert np.array_equal(np.load(run.checkpoints()[-1].weights / "logits.npy"), policy.logits_KV)


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_a_run_in_two_halves_is_the_same_run(tmp_path: Path, stop: int) -> None:
    config = fakes.config()
    fake_run(tmp_path / "straight", config)
    with pytest.raises(ZeroDivisionError):
        fake_run(tmp_path / "halves", config, rewards=_BreaksAfter(stop * 16))
    assert RunDir.open(tmp_path / "halves").status().state == "failed"
    assert differences(tmp_path / "straight", tmp_path / "halves")
    reporter = fakes.Quiet()
    outcome = fake_run(tmp_path / "halves", config, resume=True, reporter=reporter, policy=fakes.FakePolicy(seed=99))
    assert (outcome.state, outcome.step, reporter.done) == ("finished", 6, stop // 2 * 2)
    assert differences(tmp_path / "straight", tmp_path / "halves") == []


class _BreaksAfter(fakes.OneByOne):
    """Rewards that stop the whole run at one grading too many."""

    def __init__(self, count: int) -> None:
        self._left, self._rewards = count, fakes.rewards()

    def grade(self, example: Example, text: str):  # type: ignore[no-untyped-def]
        self._left -= 1
        if self._left < 0:
            raise ZeroDivisionError("planted")
        return self._rewards.grade(example, text)


def _forget_moments(policy: fakes.FakePolicy, folder: Path) -> None:
    fakes.FakePolicy.load_state(policy, folder)
    policy.moments_2KV = np.zeros_like(policy.moments_2KV)


def _forget_version(policy: fakes.FakePolicy, folder: Path) -> None:
    fakes.FakePolicy.load_state(policy, folder)
    policy._version -= 1


def _forget_weights(policy: fakes.FakePolicy, folder: Path) -> None:
    weights = policy.logits_KV
    fakes.FakePolicy.load_state(policy, folder)
    policy.logits_KV = weights


@pytest.mark.parametrize("planted", [_forget_moments, _forget_version, _forget_weights])
def test_the_comparison_of_halves_notices_what_was_forgotten(tmp_path: Path, planted, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    config = fakes.config()
    fake_run(tmp_path / "straight", config)
    with pytest.raises(ZeroDivisionError):
        fake_run(tmp_path / "halves", config, rewards=_BreaksAfter(3 * 16))

    class Forgetful(fakes.FakePolicy):
        def load_state(self, folder: Path) -> None:
            planted(self, folder)

    fake_run(tmp_path / "halves", config, resume=True, policy=Forgetful())
    assert differences(tmp_path / "straight", tmp_path / "halves")


def test_the_comparison_of_halves_notices_a_shifted_data_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = fakes.config()
    fake_run(tmp_path / "straight", config)
    with pytest.raises(ZeroDivisionError):
        fake_run(tmp_path / "halves", config, rewards=_BreaksAfter(3 * 16))
    monkeypatch.setattr(gather_module, "question_positions", lambda *args: question_positions(args[0], args[1], args[2] + 1, args[3]))
    fake_run(tmp_path / "halves", config, resume=True)
    assert any("rollouts/" in difference for difference in differences(tmp_path / "straight", tmp_path / "halves"))


def test_a_run_of_another_seed_differs(tmp_path: Path) -> None:
    fake_run(tmp_path / "a", fakes.config())
    fake_run(tmp_path / "b", fakes.config(seed=1))
    assert differences(tmp_path / "a", tmp_path / "b")


def test_a_flat_step_says_so_and_goes_on(tmp_path: Path) -> None:
    class Constant(fakes.OneByOne):
        def grade(self, example: Example, text: str):  # type: ignore[no-untyped-def]
            return {"part": 0.3}, 0.3, None, False, None

    reporter, policy = fakes.Quiet(), fakes.FakePolicy()
    outcome = fake_run(tmp_path / "run", fakes.config(), reporter=reporter, policy=policy, rewards=Constant())
    assert outcome.state == "finished" and policy.version == 0 and not policy.adams
    assert [note for note in reporter.notes if "all 4 groups are flat" in note and "no update" in note] == reporter.notes and len(reporter.notes) == 6
    for line in RunDir.open(tmp_path / "run").metrics():
        assert line["train_datums"] == 0 and line["degenerate_fraction"] == 1 and "trainer/loss" not in line
    assert all(len(rollout["trainer_logprobs"]) == len(rollout["tokens"]) for rollout in RunDir.open(tmp_path / "run").rollouts(3))


def test_off_policy_samples_stop_the_run_naming_both_numbers(tmp_path: Path) -> None:
    policy = fakes.FakePolicy(skew=0.01)
    with pytest.raises(BackendError, match=r"logprob is 0\.01, expected at most 0\.0001"):
        fake_run(tmp_path / "run", fakes.config(), policy=policy)
    assert policy.version == 0
    status = RunDir.open(tmp_path / "run").status()
    assert status.state == "failed" and status.message.startswith("BackendError: trainer and sampler disagree")
    fake_run(tmp_path / "inexact", fakes.config(), policy=fakes.FakePolicy(skew=0.01), exact=False)
    assert RunDir.open(tmp_path / "inexact").metrics()[0]["trainer/ratio_max_deviation"] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("deviation", [2e-4, float("nan"), float("inf")])
def test_on_policy_check_refuses(deviation: float) -> None:
    check_on_policy(1e-4, 1e-4)
    with pytest.raises(BackendError):
        check_on_policy(deviation, 1e-4)


def test_kl_needs_and_gets_the_reference() -> None:
    policy = fakes.FakePolicy()
    train(fake_pipeline(policy), fakes.config(steps=3, algorithm={"kl_coef": 0.05, "loss_config": {"clip_low": 0.2}}), None, fakes.Quiet())
    assert [spec.config for spec in policy.losses] == [{"clip_low": 0.2, "kl_coef": 0.05}] * 3
    for datum in policy.batches[0]:
        assert np.allclose(datum.inputs["ref_logprobs"], datum.inputs["logprobs"], atol=1e-6)  # step 1: the policy is the base
    assert not all(np.allclose(datum.inputs["ref_logprobs"], datum.inputs["logprobs"], atol=1e-6) for datum in policy.batches[-1])
    plain = fakes.FakePolicy()
    train(fake_pipeline(plain), fakes.config(steps=1), None, fakes.Quiet())
    assert "ref_logprobs" not in plain.batches[0][0].inputs and "kl_coef" not in plain.losses[0].config


def test_trainer_divides_by_the_sampling_temperature() -> None:
    policy = fakes.FakePolicy()
    rollout = {"questions_per_step": 4, "group_size": 4, "max_tokens": 6, "temperature": 0.7}
    train(fake_pipeline(policy), fakes.config(steps=2, rollout=rollout), None, fakes.Quiet())  # exact: would raise if they differed
    assert {spec.temperature for spec in policy.losses} == {0.7}


def test_nothing_is_written_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reporter = fakes.Quiet()
    outcome = train(fake_pipeline(), fakes.config(steps=1, eval={"every": 1}), None, reporter, show_samples=True)
    assert outcome.state == "finished" and list(tmp_path.iterdir()) == [] and len(reporter.shown) == 4


def test_failed_graders_are_told_counted_and_not_trained_on(tmp_path: Path) -> None:
    class Sometimes(fakes.OneByOne):
        def grade(self, example: Example, text: str):  # type: ignore[no-untyped-def]
            grade = fakes.rewards().grade(example, text)
            return grade if text[:1] != "7" else grade._replace(reward=0.0, error=f"grader.py:3 sample {example.id}: planted")

    reporter = fakes.Quiet()
    fake_run(tmp_path / "run", fakes.config(), reporter=reporter, rewards=Sometimes())
    run = RunDir.open(tmp_path / "run")
    failed = [rollout for step in range(1, 7) for rollout in run.rollouts(step) if rollout["error"]]
    assert failed and all(len(rollout["entropy"]) == len(rollout["tokens"]) and rollout["advantage"] == 0 for rollout in failed)
    assert sum(line["rollout/errors"] for line in run.metrics()) == len(failed)
    assert any("could not be graded" in note and "planted" in note for note in reporter.notes)
    assert not any("most of this step is lost" in note for note in reporter.notes)


def test_a_step_that_is_mostly_ungraded_is_a_warning_and_each_part_is_counted(tmp_path: Path) -> None:
    class Rarely(fakes.OneByOne):
        def grade(self, example: Example, text: str):  # type: ignore[no-untyped-def]
            grade = fakes.rewards().grade(example, text)
            name = next(iter(grade.scores))
            missing = {part: value for part, value in grade.scores.items() if part != name}
            return grade if text[:1] in "12" else grade._replace(scores=missing, reward=0.0, error=f"grader.py:3 sample {example.id}: planted")

    reporter = fakes.Quiet()
    fake_run(tmp_path / "run", fakes.config(steps=1), reporter=reporter, rewards=Rarely())
    (line,) = RunDir.open(tmp_path / "run").metrics()
    (counted,) = [name for name in line if name.startswith("rollout/errors/")]
    assert counted.endswith("first_digit") and 8 < line[counted] == line["rollout/errors"] < 16
    assert any(f"most of this step is lost: {line['rollout/errors']:.0f} of 16 answers" in note for note in reporter.notes)


def test_a_step_without_any_grade_stops_the_run(tmp_path: Path) -> None:
    class Never(fakes.OneByOne):
        def grade(self, example: Example, text: str):  # type: ignore[no-untyped-def]
            return {}, 0.0, None, False, "grader.py:3 always fails"

    with pytest.raises(RewardError, match=r"not one of 16 answers .* grader.py:3 always fails"):
        fake_run(tmp_path / "run", fakes.config(), rewards=Never())


def test_evaluation_while_training(tmp_path: Path) -> None:
    fake_run(tmp_path / "run", fakes.config(eval={"every": 3, "num_items": 8}))
    run = RunDir.open(tmp_path / "run")
    assert run.eval_names() == ["step-000003", "step-000006"]
    result = run.read_eval("step-000006")
    assert len(result["items"]) == 8 and result["version"] == 6
    lines = run.metrics()
    assert ["eval/accuracy" in line for line in lines] == [False, False, True, False, False, True]
    assert lines[5]["eval/accuracy"] == sum(item["correct"] for item in result["items"]) / 8


def test_the_loop_runs_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    code = """
import sys
for name in ("torch", "transformers", "peft"):
    sys.modules[name] = None
from pathlib import Path
from typing import Any
from tests import fakes
from tests.runs import fake_run
print(fake_run(Path(sys.argv[1]), fakes.config(steps=2)).state)
"""
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=False)
    assert child.stdout.strip() == "finished", child.stderr


def test_plain_lines_have_the_numbers_and_the_time_left() -> None:
    stream = io.StringIO()
    reporter = progress.make_reporter(stream)
    train(
        fake_pipeline(), fakes.config(steps=3, rollout={"questions_per_step": 4, "group_size": 4, "max_tokens": 6}), None, reporter, show_samples=True
    )
    text = stream.getvalue()
    lines = [line for line in text.splitlines() if line.startswith("step ")]
    assert [line.split("  ")[0] for line in lines] == ["step 1/3", "step 2/3", "step 3/3"]
    assert all(word in lines[0] for word in ("reward", "format", "flat", "length", "cut", "grad", "tok/s", "left 0:00"))
    assert "which digit, kind" in text and "gold" in text and "brevity" in text and "\x1b" not in text


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    reporter = progress.make_reporter(stream)
    assert isinstance(reporter, progress.BarReporter)
    train(fake_pipeline(), fakes.config(steps=3), None, reporter)
    assert "3/3" in stream.getvalue() and "reward" in stream.getvalue()


def test_time_left_is_the_recent_mean() -> None:
    times = iter([0.0, 10.0, 12.0])
    remaining = progress.Remaining(lambda: next(times))
    remaining.mark()
    assert remaining.seconds(5) is None
    remaining.mark()
    assert remaining.seconds(5) == 50
    remaining.mark()
    assert remaining.seconds(2) == 12


def test_a_step_line_of_json_is_plain(tmp_path: Path) -> None:
    fake_run(tmp_path / "run", fakes.config(steps=2))
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert all(value is None or isinstance(value, int | float) for value in json.loads(line).values())
    RunWriter.resume(tmp_path / "run").close()


def test_the_documentation_names_everything_that_is_written(tmp_path: Path) -> None:
    fake_run(tmp_path / "run", fakes.config(eval={"every": 2, "num_items": 4}, algorithm={"kl_coef": 0.1}))
    page = (Path(__file__).parents[1] / "docs" / "run-directory.md").read_text(encoding="utf-8")
    run = RunDir.open(tmp_path / "run")
    metrics = {name for line in run.metrics() for name in line if not name.startswith("reward/")}
    index = (run.path / "rollouts" / "index.jsonl").read_text().splitlines()[0]
    names = metrics | run.rollouts(1)[0].keys() | json.loads(index).keys() | json.loads((run.path / "status.json").read_text()).keys()
    assert len(names) > 50 and [name for name in sorted(names) if f"`{name}`" not in page] == []
    files = {path.name for path in run.path.iterdir()} - {"rollouts", "images", "checkpoints", "eval"}
    assert [name for name in sorted(files) if name not in page] == []
