"""`doctor`: each check passes on a sound recipe and fails on the fault that it is there for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from seegrad.config import load_config
from seegrad.errors import BackendError, DataError, SamplerError
from seegrad.preflight import Check, gold_text, preflight
from seegrad.types import Example, ImageChunk, ModelInput, SamplingParams
from seegrad.wiring import Parts
from tests.echo_backend import EchoSampler
from tests.fakes import FakePolicy, FakeRenderer, FakeSampler, OneByOne, examples, first_digit, rewards

PARAMS = SamplingParams(max_tokens=4, temperature=1.0, stop_token_ids=(10,))


class Plain(OneByOne):
    """A grader like those of a config: the gold answer anywhere in the box."""

    def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
        box = text.rpartition("\\boxed{")[2].rstrip("}") if "\\boxed{" in text else text[:1]
        right = box == example.answer
        return {"right": float(right)}, float(right), box or None, right, None


def findings(**changes: Any) -> dict[str, Check]:
    rows = examples()
    parts: dict[str, Any] = {
        "train": rows[:8],
        "held_out": rows[8:],
        "renderer": FakeRenderer(),
        "rewards": Plain(),
        "open_sampler": lambda: FakePolicy().sampler(),
        "params": PARAMS,
    }
    return {check.name: check for check in preflight(**{**parts, **changes})}


def test_a_sound_recipe_passes_every_check() -> None:
    found = findings()
    assert len(found) == 6
    assert not [check for check in found.values() if not check.passed]
    assert "tokens       min  median     max" in found["prompts render"].detail


@pytest.mark.parametrize("name", ["count", "choice", "ground"])
def test_gold_answers_of_the_recipes_score_1(name: str) -> None:
    parts = Parts(load_config(name))
    train, dev = parts.examples("train")[:12], parts.examples("dev")[:12]
    sampler = EchoSampler(parts.config.model, 0)
    found = {check.name: check for check in preflight(train, dev, parts.renderer, parts.rewards, lambda: sampler, parts.sampling(temperature=1.0))}
    assert not [check for check in found.values() if check.passed is False]
    assert "24 of 24 are correct" in found["gold answers score 1"].detail


def test_rows_that_cannot_be_read_or_repeat_are_named() -> None:
    class Torn(Sequence[Example]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, position: Any) -> Any:
            if position == 1:
                raise DataError("row 1: the picture is not an image")
            return examples()[position]

    check = findings(train=Torn())["rows can be read and are disjoint"]
    assert check.passed is False
    assert "row 1: the picture is not an image" in check.detail
    check = findings(held_out=examples()[:2])["rows can be read and are disjoint"]
    assert check.passed is False
    assert "'row-0'" in check.detail


def test_an_empty_data_set_stops_here() -> None:
    assert [check.passed for check in findings(train=[], held_out=[]).values()] == [False]


def test_a_grader_that_rejects_gold_fails() -> None:
    rows = [dataclasses.replace(row, answer="nine") for row in examples()]
    check = findings(rewards=rewards(), train=rows[:8], held_out=rows[8:])["gold answers score 1"]
    assert check.passed is False
    assert "gold 'nine'" in check.detail


def test_a_grader_that_accepts_anything_fails() -> None:
    class Generous(Plain):
        def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
            return {"right": 1.0}, 1.0, text, True, None

    assert findings(rewards=Generous())["wrong answers do not"].passed is False


def test_a_grader_that_raises_is_quoted() -> None:
    class Broken(Plain):
        def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
            return {}, 0.0, None, False, "reward 'mine.py:f' raised KeyError: 'label' (mine.py:3, sample 'row-0')"

    check = findings(rewards=Broken())["gold answers score 1"]
    assert check.passed is False
    assert "label" in check.detail


def sampler_that_counts(num_tokens: int) -> Callable[[], FakeSampler]:
    class Counting(FakeSampler):
        def sample(self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, **rest: Any) -> Any:
            for prompt in prompts_P:
                if any(chunk.num_tokens != num_tokens for chunk in prompt.images):
                    raise SamplerError(f"an image chunk says num_tokens={prompt.images[0].num_tokens} but this model makes {num_tokens}")
            return super().sample(prompts_P, params, num_samples, **rest)

    return lambda: Counting(FakePolicy().logits_KV, 0)


def test_another_token_count_fails_with_both_numbers() -> None:
    name = "model loads and counts the same tokens"
    assert findings(open_sampler=sampler_that_counts(4))[name].passed is True
    check = findings(open_sampler=sampler_that_counts(5))[name]
    assert check.passed is False
    assert "num_tokens=4" in check.detail
    assert "makes 5" in check.detail


def test_a_model_that_does_not_load_is_a_failed_check() -> None:
    def absent() -> FakeSampler:
        raise BackendError("model 'x' is not a folder")

    found = findings(open_sampler=absent)
    assert found["model loads and counts the same tokens"] == Check("model loads and counts the same tokens", False, "model 'x' is not a folder")
    assert "the model's own answers" not in found


def test_no_signal_is_a_remark() -> None:
    class Deaf(Plain):
        def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
            scores, reward, parsed, right, error = super().grade(example, text)
            return (scores, reward, parsed, right, error) if "\\boxed{" in text else ({"right": 0.0}, 0.0, None, False, None)

    check = findings(rewards=Deaf())["the model's own answers"]
    assert check.passed is None
    assert "nothing to learn from" in check.detail


def test_a_defect_is_not_a_finding() -> None:
    class Torn(FakeRenderer):
        def render(self, example: Example) -> ModelInput:
            return ModelInput((ImageChunk(b"", "png", 0),))

    with pytest.raises(ValueError, match="at least 1 token"):
        findings(renderer=Torn())


def test_gold_text_asks_nothing_of_the_grader_but_the_answer() -> None:
    example = examples()[0]
    assert first_digit(example, gold_text(example)).value == 0.0
    asked = dataclasses.replace(example, question="<image>数一数。把答案写在\\boxed{}里。")
    assert gold_text(asked) == f"数一数。把答案写在里。\n\\boxed{{{example.answer}}}"
