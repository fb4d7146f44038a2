"""`doctor`: each check passes on a sound recipe and fails on the fault that it is there for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from seegrad.config import load_config
from seegrad.errors import BackendError, SamplerError
from seegrad.preflight.check import Check
from seegrad.preflight.examine import examine
from seegrad.types import Example, ImageChunk, ModelInput, SamplingParams
from seegrad.wiring import Parts
from tests.echo_backend import EchoSampler
from tests.fakes import FakePolicy, FakeRenderer, FakeSampler
from tests.preflight.subjects import Plain, findings, with_parts

NAMES = ["rows", "ids", "splits", "gold answers", "wrong answers", "prompts", "memory", "model", "answers", "reward parts", "chance", "flat groups"]


def test_a_sound_recipe_passes_every_check_in_order() -> None:
    found = findings()
    assert list(found) == NAMES
    assert not [check for check in found.values() if check.passed is False]


@pytest.mark.parametrize("name", ["count", "choice", "ground"])
def test_recipes_pass_with_any_sampler(name: str) -> None:
    parts = Parts(load_config(name))
    sampler = EchoSampler(parts.config.model, 0)
    subject = with_parts(parts, train=parts.examples("train")[:12], held_out=parts.examples("dev")[:12], open_sampler=lambda: sampler)
    found = {check.name: check for check in examine(subject, num_items=12)}
    assert list(found) == NAMES
    assert not [check for check in found.values() if check.passed is False]
    assert "24 of 24 are graded as right" in found["gold answers"].detail


def test_an_empty_data_set_stops_here() -> None:
    assert [(check.name, check.passed) for check in findings(train=[], held_out=[]).values()] == [("rows", False)]


def sampler_that_counts(num_tokens: int) -> Callable[[], FakeSampler]:
    class Counting(FakeSampler):
        def sample(self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, **rest: Any) -> Any:
            for prompt in prompts_P:
                if any(chunk.num_tokens != num_tokens for chunk in prompt.images):
                    raise SamplerError(f"an image chunk says num_tokens={prompt.images[0].num_tokens} but this model makes {num_tokens}")
            return super().sample(prompts_P, params, num_samples, **rest)

    return lambda: Counting(FakePolicy().logits_KV, 0)


def test_another_token_count_fails_with_both_numbers() -> None:
    assert findings(open_sampler=sampler_that_counts(4))["model"].passed is True
    check = findings(open_sampler=sampler_that_counts(5))["model"]
    assert check.passed is False
    assert "num_tokens=4" in check.detail
    assert "makes 5" in check.detail


def test_a_model_that_does_not_load_is_a_failed_check() -> None:
    def absent() -> FakeSampler:
        raise BackendError("model 'x' is not a folder")

    found = findings(open_sampler=absent)
    assert (found["model"].passed, found["model"].detail) == (False, "model 'x' is not a folder")
    assert "answers" not in found


def test_a_renderer_that_does_not_open_leaves_the_graders_checked() -> None:
    def absent() -> FakeRenderer:
        raise BackendError("no chat template")

    found = findings(open_renderer=absent)
    assert list(found) == NAMES[:6]
    assert (found["prompts"].passed, found["prompts"].detail) == (False, "no chat template")
    assert found["gold answers"].passed is True


def test_without_a_model_nothing_is_opened() -> None:
    def never() -> FakeSampler:
        raise AssertionError("opened")

    found = findings(open_sampler=never, without_model="the folder has no weights (*.safetensors)")
    assert list(found) == NAMES[:8]
    assert found["model"] == Check("model", None, "skipped: the folder has no weights (*.safetensors)", found["model"].change)


def test_a_sampler_that_breaks_while_answering_is_a_finding() -> None:
    class Late(FakeSampler):
        def sample(self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, **rest: Any) -> Any:
            if params.max_tokens > 1:
                raise BackendError("the model's logits are not finite")
            return super().sample(prompts_P, params, num_samples, **rest)

    found = findings(open_sampler=lambda: Late(FakePolicy().logits_KV, 0))
    assert found["model"].passed is True
    assert (found["answers"].passed, found["answers"].detail) == (False, "the model's logits are not finite")


def test_a_defect_is_not_a_finding() -> None:
    class Torn(FakeRenderer):
        def render(self, example: Example) -> ModelInput:
            return ModelInput((ImageChunk(b"", "png", 0),))

    with pytest.raises(ValueError, match="at least 1 token"):
        findings(open_renderer=Torn)


def test_rewards_that_look_at_pictures_get_them() -> None:
    seen: list[int] = []

    class Looks(Plain):
        def grade(self, example: Example, text: str) -> Any:
            seen.append(len(example.images))
            return super().grade(example, text)

    findings(rewards=Looks(), light=False)
    assert set(seen) == {1}


def test_a_check_that_did_not_pass_says_what_to_change() -> None:
    with pytest.raises(ValueError, match="does not say what to change"):
        Check("rows", None, "something")
    check = Check("rows", False, "nothing there", "give rows")
    assert check.lines() == "FAIL  rows: nothing there\n      change: give rows"
    assert dataclasses.replace(check, passed=True).tree()["result"] == "ok"
