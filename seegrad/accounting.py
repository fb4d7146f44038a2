"""What a run has read, written and trained on, in tokens, and what that would have cost. docs/tracking.md defines every count.

    groups ─ metrics.rollout_metrics ─▶ tokens/prefill, tokens/sampled ┐
    datums ─ metrics.trainer_metrics ─▶ tokens/trained                 ├─▶ Ledger ─▶ tokens/total_*, cost/*
    evaluation ─ Meter ───────────────▶ tokens/eval_*                  ┘

Totals are sums over the steps of the run as metrics.jsonl holds them, so a continued run has the totals of the undisturbed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seegrad.backends.base import Sampler
from seegrad.config import CostConfig
from seegrad.rundir import RunDir
from seegrad.types import Completion, Datum, Floats, ModelInput, SamplingParams

COUNTS = ("prefill", "prefill_image", "sampled", "trained", "eval_prefill", "eval_sampled")
_PER = 1_000_000  # prices are per million tokens


class Meter:
    """A sampler that counts what goes through it; the answers are those of the sampler inside."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._prefill = self._image = self._sampled = 0

    @property
    def version(self) -> int:
        return self._sampler.version

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        answers = self._sampler.sample(prompts_P, params, num_samples, seeds_P=seeds_P)
        self._prefill += sum(map(len, prompts_P))
        self._image += sum(map(image_tokens, prompts_P))
        self._sampled += sum(len(completion.tokens_T) for completions in answers for completion in completions)
        return answers

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        return self._sampler.logprobs(datums, temperature)

    def metrics(self) -> dict[str, float]:
        """Counts so far, under the names that an evaluation has in metrics.jsonl: each prompt of each call once, pictures included."""
        return {
            "tokens/eval_prefill": float(self._prefill),
            "tokens/eval_prefill_image": float(self._image),
            "tokens/eval_sampled": float(self._sampled),
        }


class Ledger:
    """Running totals of a run, and their price.

    >>> ledger = Ledger(CostConfig(sampled=5.0))
    >>> ledger.add({"tokens/prefill": 100.0, "tokens/sampled": 4e5})["cost/total"]
    2.0
    """

    def __init__(self, prices: CostConfig, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """`lines` are the metrics of the steps that the run has taken already."""
        self._prices = prices
        self._totals = dict.fromkeys(COUNTS, 0.0)
        for line in lines:
            self._count(line)

    def add(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Count one more step; returns the metrics `tokens/total_*` and, with a price, `cost/*`, the step's own included.

        Costs follow from counts, never from other costs: rounding does not add up.
        """
        self._count(metrics)
        found = {f"tokens/total_{name}": total for name, total in self._totals.items() if total or not name.startswith("eval")}
        if not has_price(self._prices):
            return found
        step = {name: float(metrics.get(f"tokens/{name}") or 0.0) for name in COUNTS}
        found["cost/step"] = sum(_training_cost(self._prices, step).values())
        if step["eval_prefill"]:
            found["cost/eval"] = _evaluation_cost(self._prices, step)
        found["cost/total"] = self.cost
        return found

    @property
    def cost(self) -> float:
        """Of the whole run so far, evaluations included, in `cost.currency`."""
        return sum(_training_cost(self._prices, self._totals).values()) + _evaluation_cost(self._prices, self._totals)

    def lines(self) -> list[str]:
        """The totals, for a person."""
        totals, prices = self._totals, self._prices
        image = f" ({short_count(totals['prefill_image'])} of them pictures)" if totals["prefill_image"] else ""
        found = [f"tokens: {short_count(totals['prefill'])} prefill{image}, {_words(totals, 'sampled', 'trained')}"]
        if totals["eval_prefill"]:
            found.append(f"evaluation: {short_count(totals['eval_prefill'])} prefill, {short_count(totals['eval_sampled'])} sampled")
        if has_price(prices):
            parts = [f"{name} {prices.currency}{cost:.2f}" for name, cost in _training_cost(prices, totals).items()]
            parts += [f"evaluation {prices.currency}{_evaluation_cost(prices, totals):.2f}"] if totals["eval_prefill"] else []
            found.append(f"cost: {prices.currency}{self.cost:.2f} ({', '.join(parts)})")
        return found

    def _count(self, metrics: Mapping[str, Any]) -> None:
        for name in COUNTS:
            self._totals[name] += metrics.get(f"tokens/{name}") or 0.0


def summary(run: RunDir) -> list[str]:
    """Tokens and cost of all steps of a run, one line each; empty when it has taken none."""
    steps = run.metrics()
    return Ledger(run.config().cost, steps).lines() if steps else []


def has_price(prices: CostConfig) -> bool:
    """Whether any price is set; one that is not counts as 0."""
    return any(price is not None for price in (prices.prefill, prices.sampled, prices.trained))


def image_tokens(model_input: ModelInput) -> int:
    """Positions of a prompt that stand for pictures."""
    return sum(map(len, model_input.images))


def short_count(count: float) -> str:
    """
    >>> short_count(812), short_count(33_790), short_count(617_000)
    ('812', '33.79K', '0.62M')
    """
    for limit, divisor, unit in ((1_000, 1, ""), (100_000, 1_000, "K"), (100_000_000, _PER, "M")):
        if count < limit:
            return f"{count / divisor:.2f}{unit}" if unit else f"{count:.0f}"
    return f"{count / 1e9:.2f}B"


def _training_cost(prices: CostConfig, counts: Mapping[str, float]) -> dict[str, float]:
    named = {"prefill": prices.prefill, "sampled": prices.sampled, "trained": prices.trained}
    return {name: counts[name] * price / _PER for name, price in named.items() if price is not None}


def _evaluation_cost(prices: CostConfig, counts: Mapping[str, float]) -> float:
    return (counts["eval_prefill"] * (prices.prefill or 0.0) + counts["eval_sampled"] * (prices.sampled or 0.0)) / _PER


def _words(totals: Mapping[str, float], *names: str) -> str:
    return ", ".join(f"{short_count(totals[name])} {name}" for name in names)
