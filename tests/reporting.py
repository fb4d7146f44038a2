"""Fakes that tests of evaluation and reports share: a sampler that answers by rule, and evaluations made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from seegrad.config import DataConfig, load_config
from seegrad.data import shapes
from seegrad.evaluate import EvalItem, EvalResult, evaluate, write_images
from seegrad.rewards.base import Rewards
from seegrad.rundir import RunWriter
from seegrad.types import Completion, Datum, Example, Floats, ImageChunk, ModelInput, SamplingParams, TextChunk

Answer = Callable[[int], str]
Rule = Callable[[int], bool]


class NumberingRenderer:
    """Puts the example's number into the prompt, so that the fake sampler knows what it is asked."""

    stop_token_ids = (9,)

    def render(self, example: Example) -> ModelInput:
        return ModelInput((TextChunk((number(example),)), *(ImageChunk(data, "png", 4) for data in example.images)))


class RuleSampler:
    """Answers prompt n with `answer(n)`, one token per character; notes every call."""

    def __init__(self, answer: Answer, version: int = 0) -> None:
        self.answer, self.version = answer, version
        self.calls: list[tuple[list[int], SamplingParams, list[int]]] = []

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        asked = [prompt.token_ids(0)[0] for prompt in prompts_P]
        self.calls.append((asked, params, list(seeds_P or [])))
        return [[self._completion(n, params.max_tokens)] * num_samples for n in asked]

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        raise NotImplementedError

    def _completion(self, n: int, limit: int) -> Completion:
        text = self.answer(n)[:limit]
        return Completion(tuple(range(len(text))), np.zeros(len(text), np.float32), "length" if len(text) == limit else "stop", text)


class ChanceSampler(RuleSampler):
    """Answers prompt n with `say(n, draw)`; `draw` in [0, 1) follows from the prompt's seed and the number of the sample alone."""

    def __init__(self, say: Callable[[int, float], str], version: int = 0) -> None:
        super().__init__(lambda n: say(n, 0.0), version)
        self._say = say

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        asked, seeds = [prompt.token_ids(0)[0] for prompt in prompts_P], list(seeds_P or [])
        self.calls.append((asked, params, seeds))
        drawn = [np.random.default_rng((seed, g)).random() for seed in seeds for g in range(num_samples)]
        texts = [self._say(n, drawn[p * num_samples + g]) for p, n in enumerate(asked) for g in range(num_samples)]
        done = [Completion(tuple(range(len(text))), np.zeros(len(text), np.float32), "stop", text) for text in texts]
        return [done[p * num_samples : (p + 1) * num_samples] for p in range(len(asked))]


def number(example: Example) -> int:
    return int(example.id.rpartition("-")[2])


def examples(task: str = "count", split: str = "test", count: int = 40) -> Sequence[Example]:
    data_set: shapes.Shapes = getattr(shapes, task)(split, DataConfig())
    return data_set[:count]


def answer(rows: Sequence[Example], right: Callable[[int], bool], readable: Callable[[int], bool] = lambda n: True) -> Answer:
    """A counting model that is right and readable where the rules say so."""

    def say(n: int) -> str:
        said = rows[n].answer if right(n) else str(int(rows[n].answer) % 5 + 1)
        return f"圆形：共{said}" + "个" * (n % 4) + (f"。\\boxed{{{said}}}" if readable(n) else "。")

    return say


def evaluation(rows: Sequence[Example], say: Answer, *, name: str = "x", version: int = 0, split: str = "test", model: str = "tiny") -> EvalResult:
    rewards = Rewards({"count": 1.0, "format": 0.2})
    return evaluate(
        RuleSampler(say, version), NumberingRenderer(), rewards, rows, batch_size=16, name=name, dataset="count", split=split, model=model
    )


def chancy(rows: Sequence[Example], skill: Callable[[int], float]) -> Callable[[int, float], str]:
    """A counting model that is right with probability `skill(n)`, and readable in nine of ten of its other answers."""

    def say(n: int, draw: float) -> str:
        said = rows[n].answer if draw < skill(n) else str(int(rows[n].answer) % 5 + 1)
        return f"There are {said}." + (f" \\boxed{{{said}}}" if draw < 0.9 else "")

    return say


def sampled(
    rows: Sequence[Example],
    skill: Callable[[int], float],
    *,
    num_samples: int = 4,
    seeds: Sequence[int] = (0,),
    name: str = "x",
    version: int = 0,
    split: str = "test",
) -> EvalResult:
    """An evaluation with several answers to each item, at temperature 0.7."""
    return evaluate(
        ChanceSampler(chancy(rows, skill), version),
        NumberingRenderer(),
        Rewards({"count": 1.0, "format": 0.2}),
        rows,
        SamplingParams(temperature=0.7),
        num_samples=num_samples,
        seeds=seeds,
        batch_size=16,
        name=name,
        dataset="count",
        split=split,
        model="tiny",
    )


def write_run(folder: Path, *, steps: int = 20, num_items: int = 40) -> Path:
    """A run directory with metrics, pictures, and evaluations of base and trained on `test` and `ood`."""
    with RunWriter.create(folder, load_config("count")) as run:
        for step in range(1, steps + 1):
            share = step / steps
            metrics = {"reward": 0.5 + share, "format_rate": 0.6 + 0.4 * share, "degenerate_fraction": 0.5 * share}
            metrics |= {
                "rollout/completion_tokens_mean": 10.0,
                "trainer/grad_norm": 1.0,
                "trainer/kl": 0.01 * share,
                "trainer/entropy": 1 - 0.5 * share,
            }
            run.write_step(step, [], {}, metrics)
    for split, base_every in (("test", 2), ("ood", 3)):
        rows = examples(split=split, count=num_items)
        write_images(rows, folder / "images")
        base = answer(rows, lambda n, every=base_every: n % every == 0, lambda n: n % 5 != 0)  # type: ignore[misc]
        trained = answer(rows, lambda n: n % 10 != 0)
        evaluation(rows, base, name=f"base-{split}", split=split).to_json(folder / "eval" / f"base-{split}.json")
        evaluation(rows, trained, name=f"trained-{split}", version=steps, split=split).to_json(folder / "eval" / f"trained-{split}.json")
    return folder


def model(right: Rule, readable: Rule = lambda n: True, *, count: int = 40, version: int = 0) -> EvalResult:
    """A model that is right, and readable, on the items that the rules name."""
    rows = examples(count=count)
    return evaluation(rows, answer(rows, right, readable), name=f"v{version}", version=version)


def result(*items: EvalItem, version: int = 0) -> EvalResult:
    return EvalResult(f"v{version}", items, 2.0, version, split="test")


def item(name: str, parsed: str | None, correct: bool, **more: object) -> EvalItem:
    return EvalItem(name, "q", "1", parsed=parsed, correct=correct, **more)  # type: ignore[arg-type]
