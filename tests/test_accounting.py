"""Tokens and cost: what is counted, what it adds up to after an interruption, and the arithmetic of the price table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from seegrad import accounting
from seegrad.accounting import Ledger, Meter, image_tokens, short_count
from seegrad.config import CostConfig
from seegrad.report import report
from seegrad.rundir import RunDir
from seegrad.train import train
from seegrad.types import SamplingParams
from tests import fakes
from tests.runs import differences, fake_pipeline, fake_run

PRICES = {"prefill": 0.6, "sampled": 5.0, "trained": 4.85}
EVALS = {"every": 3, "num_items": 8}


def test_the_example_of_the_guide() -> None:
    """20 steps of 1,689.5 prefill, 31,000 sampled and 20,000 trained tokens, at the prices of docs/tracking.md."""
    page = (Path(__file__).parents[1] / "docs" / "tracking.md").read_text(encoding="utf-8")
    prices = {name: float(re.search(rf"^{name} = ([\d.]+)", page, re.M).group(1)) for name in PRICES}  # type: ignore[union-attr]
    assert prices == PRICES
    ledger = Ledger(CostConfig.model_validate(prices))
    for _ in range(20):
        found = ledger.add({"tokens/prefill": 1689.5, "tokens/prefill_image": 1500.0, "tokens/sampled": 31_000.0, "tokens/trained": 20_000.0})
    assert found["cost/total"] == pytest.approx(5.06, abs=0.001) and found["cost/step"] == pytest.approx(5.06 / 20, abs=1e-4)
    assert ledger.lines()[0] == "tokens: 33.79K prefill (30.00K of them pictures), 0.62M sampled, 0.40M trained"
    assert ledger.lines()[1] == "cost: ¥5.06 (prefill ¥0.02, sampled ¥3.10, trained ¥1.94)"
    assert all(line in page for line in ledger.lines())


def test_counts_are_what_the_rollouts_say(tmp_path: Path) -> None:
    policy = fakes.FakePolicy()
    fake_run(tmp_path / "run", fakes.config(cost=PRICES, eval=EVALS), policy=policy)
    run = RunDir.open(tmp_path / "run")
    sums: dict[str, float] = dict.fromkeys(("prefill", "sampled", "trained", "eval_prefill", "eval_sampled"), 0.0)
    batches = iter(policy.batches)
    for line in run.metrics():
        rollouts = run.rollouts(line["step"])
        firsts = [rollout for rollout in rollouts if rollout["attempt"] == 0]
        assert (
            line["tokens/prefill"]
            == sum(rollout["prompt_tokens"] for rollout in firsts)
            == line["tokens/prefill_image"] + line["tokens/prefill_text"]
        )
        assert line["tokens/prefill_image"] == 4 * len(firsts)  # the renderer's pictures have four tokens
        assert line["tokens/prefill_per_answer"] == sum(rollout["prompt_tokens"] for rollout in rollouts)
        assert line["tokens/sampled"] == sum(len(rollout["tokens"]) for rollout in rollouts)
        trained = [rollout for rollout in rollouts if rollout["advantage"]]
        assert line["tokens/trained"] == sum(len(rollout["tokens"]) for rollout in trained)
        batch = next(batch for batch in batches if len(batch) == len(trained) and any("advantages" in datum.inputs for datum in batch))
        assert line["tokens/trained_sequence"] == sum(map(len, batch))
        if line["step"] % 3 == 0:
            items = run.read_eval(f"step-{line['step']:06d}")["items"]
            assert line["tokens/eval_sampled"] == sum(item["num_tokens"] for item in items)
            assert (line["tokens/eval_prefill"], line["tokens/eval_prefill_image"]) == (6 * 8, 4 * 8)
        else:
            assert not [name for name in line if name.startswith(("tokens/eval", "cost/eval"))]
        for name in sums:
            sums[name] += line.get(f"tokens/{name}", 0)
            assert line.get(f"tokens/total_{name}", 0) == sums[name]
        cost = (sums["prefill"] + sums["eval_prefill"]) * 0.6 + (sums["sampled"] + sums["eval_sampled"]) * 5 + sums["trained"] * 4.85
        assert line["cost/total"] == pytest.approx(cost / 1e6, rel=1e-12)
    lines = run.metrics()
    assert lines[-1]["cost/total"] == pytest.approx(sum(line["cost/step"] + line.get("cost/eval", 0) for line in lines), rel=1e-12)


def test_totals_of_a_continued_run_are_those_of_the_undisturbed_one(tmp_path: Path) -> None:
    """The run stops in step 4, after its checkpoint of step 2: step 3 is taken twice and counted once."""

    class Throws:
        def __init__(self) -> None:
            self.count, self.rewards = 0, fakes.rewards()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.rewards, name)

        def grade_groups(self, groups: Any) -> Any:
            self.count += 1
            if self.count == 5:  # the evaluation of step 3 is graded, too
                raise KeyboardInterrupt
            return self.rewards.grade_groups(groups)

    config = fakes.config(cost=PRICES, eval=EVALS)
    fake_run(tmp_path / "straight", config)
    with pytest.raises(KeyboardInterrupt):
        fake_run(tmp_path / "run", config, rewards=Throws())
    assert len(RunDir.open(tmp_path / "run").metrics()) == 3
    fake_run(tmp_path / "run", config, resume=True)
    assert differences(tmp_path / "straight", tmp_path / "run") == []
    assert accounting.summary(RunDir.open(tmp_path / "run")) == accounting.summary(RunDir.open(tmp_path / "straight"))
    wrong = Ledger(config.cost, [*RunDir.open(tmp_path / "run").metrics(), RunDir.open(tmp_path / "run").metrics()[2]])
    assert wrong.lines() != accounting.summary(RunDir.open(tmp_path / "run"))  # a step too many would show


def test_the_end_of_a_run_tells(tmp_path: Path) -> None:
    config = fakes.config(cost={"sampled": 5000.0, "currency": "€"}, eval=EVALS)
    outcome = fake_run(tmp_path / "run", config)
    total = RunDir.open(tmp_path / "run").metrics()[-1]
    assert list(outcome.spent) == accounting.summary(RunDir.open(tmp_path / "run"))
    assert outcome.spent[1] == f"evaluation: 96 prefill, {total['tokens/total_eval_sampled']:.0f} sampled"
    assert outcome.spent[2].startswith(f"cost: €{total['cost/total']:.2f} (sampled €") and "trained" not in outcome.spent[2]
    assert train(fake_pipeline(), config, None, fakes.Quiet()).spent == outcome.spent  # without a run directory, too


def test_no_price_no_cost_and_nothing_to_tell_of_no_step(tmp_path: Path) -> None:
    outcome = fake_run(tmp_path / "run", fakes.config(steps=2))
    assert not [name for line in RunDir.open(tmp_path / "run").metrics() for name in line if name.startswith("cost")]
    assert len(outcome.spent) == 1
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    assert accounting.summary(RunDir.open(tmp_path / "run")) == []


def test_a_free_token_is_a_price_too() -> None:
    assert Ledger(CostConfig(prefill=0.0)).add({"tokens/prefill": 5.0})["cost/total"] == 0


def test_metrics_of_other_versions_do_not_stop_a_summary(tmp_path: Path) -> None:
    fake_run(tmp_path / "run", fakes.config(steps=2))
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[0]["tokens/prefill_image"]
    lines[0]["tokens/trained"] = None
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert accounting.summary(RunDir.open(tmp_path / "run"))[0].startswith("tokens: 48 prefill (16 of them pictures)")


def test_a_meter_changes_nothing_and_counts_calls() -> None:
    sampler = fakes.FakePolicy().sampler()
    meter = Meter(sampler)
    prompts = [fakes.FakeRenderer().render(example) for example in fakes.examples(3)]
    answers, plain = (one.sample(prompts, SamplingParams(6), 2, seeds_P=[1, 2, 3]) for one in (meter, sampler))
    assert [[c.tokens_T for c in group] for group in answers] == [[c.tokens_T for c in group] for group in plain]
    assert meter.version == sampler.version and image_tokens(prompts[0]) == 4
    sampled = sum(len(c.tokens_T) for group in answers for c in group)
    assert meter.metrics() == {"tokens/eval_prefill": 18.0, "tokens/eval_prefill_image": 12.0, "tokens/eval_sampled": sampled}


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0"), (999, "999"), (1000, "1.00K"), (99_999, "100.00K"), (100_000, "0.10M"), (3.2e7, "32.00M"), (2.5e9, "2.50B")]
)
def test_short_counts(count: float, words: str) -> None:
    assert short_count(count) == words


def test_the_report_says_what_the_run_has_used(tmp_path: Path) -> None:
    path = tmp_path / "run"
    fake_run(path, fakes.config(cost=PRICES, eval={"every": 3, "num_items": 12}))
    base = json.loads((path / "eval/step-000003.json").read_text())
    (path / "eval/base.json").write_text(json.dumps({**base, "name": "base", "version": 0}))
    text = report(path).read_text(encoding="utf-8")
    assert all(f"- {line}" in text for line in accounting.summary(RunDir.open(path)))
