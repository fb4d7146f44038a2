"""The nouns check themselves once, cannot be changed, and count what they say they count."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad.types import Completion, Datum, Example, Group, ImageChunk, ModelInput, Rollout, SamplingParams, Score, TextChunk

IMAGE = ImageChunk(b"picture", "png", 3)
CHUNKS = st.lists(st.one_of(st.lists(st.integers(0, 9), max_size=4).map(lambda ids: TextChunk(tuple(ids))), st.just(IMAGE)), max_size=5)


def rollout(reward: float, error: str | None = None) -> Rollout:
    return Rollout(Completion((1,), np.zeros(1, np.float32), "stop", ""), {}, reward, error=error)


@given(CHUNKS, st.lists(st.integers(0, 9), max_size=4))
def test_length_counts_text_and_image_tokens_and_adding_appends(chunks: list[TextChunk | ImageChunk], tokens: list[int]) -> None:
    model_input = ModelInput(tuple(chunks))
    assert len(model_input) == len(model_input.token_ids(99))
    assert model_input.token_ids(99).count(99) == 3 * len(model_input.images)
    longer = model_input + tokens
    assert longer.token_ids(99) == model_input.token_ids(99) + tokens
    assert longer.images == model_input.images and len(model_input) == sum(len(chunk) for chunk in chunks)


def test_added_tokens_join_the_last_text_chunk() -> None:
    more = (2,)
    assert ModelInput((IMAGE, TextChunk((1,)))) + more == ModelInput((IMAGE, TextChunk((1, 2))))
    assert ModelInput((IMAGE,)) + more == ModelInput((IMAGE, TextChunk((2,))))
    assert ModelInput(()) + more == ModelInput((TextChunk((2,)),))


@pytest.mark.parametrize("value", [Example("a", "?", "3"), IMAGE, TextChunk((1,)), ModelInput(()), SamplingParams(), Score(1.0), rollout(1.0)])
def test_values_cannot_be_changed(value: object) -> None:
    name = dataclasses.fields(value)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)
    assert not hasattr(value, "__dict__")


def test_an_example_without_meta_has_an_empty_one_that_cannot_be_shared_by_writing() -> None:
    with pytest.raises(TypeError):
        Example("a", "?", "3").meta["x"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    "settings",
    [{"max_tokens": 0}, {"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}],
    ids=lambda settings: next(iter(settings)),
)
def test_sampling_params_refuse_what_cannot_be(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        SamplingParams(**settings)  # type: ignore[arg-type]


def test_lengths_must_agree() -> None:
    prompt = ModelInput((TextChunk((1, 2)),))
    with pytest.raises(ValueError, match="at least 1 token"):
        ImageChunk(b"", "png", 0)
    with pytest.raises(ValueError, match="2 tokens but 1 logprobs"):
        Completion((1, 2), np.zeros(1, np.float32), "stop", "")
    with pytest.raises(ValueError, match="2 positions but target_tokens_T has 3"):
        Datum(prompt, np.zeros(3, np.int64), {})
    with pytest.raises(ValueError, match=r"2 positions but inputs\['mask'\] has 1"):
        Datum(prompt, np.zeros(2, np.int64), {"mask": np.ones(1, np.float32)})


def test_active_positions_follow_mask_then_weights_then_advantages() -> None:
    prompt, targets = ModelInput((TextChunk((1, 2)),)), np.zeros(2, np.int64)
    first, second = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    assert Datum(prompt, targets, {"mask": first, "weights": second}).active_T.tolist() == [True, False]
    assert Datum(prompt, targets, {"advantages": first, "weights": second}).active_T.tolist() == [False, True]
    assert Datum(prompt, targets, {"advantages": -second, "logprobs": first}).active_T.tolist() == [False, True]
    assert Datum(prompt, targets, {"logprobs": first}).active_T.tolist() == [True, True]


@pytest.mark.parametrize(
    ("rollouts", "flat"),
    [
        ([rollout(1), rollout(1)], True),
        ([rollout(1), rollout(0)], False),
        ([rollout(0.1 + 0.2), rollout(0.3)], False),
        ([rollout(1), rollout(0, error="failed")], True),
        ([rollout(1), rollout(0, error="failed"), rollout(0)], False),
        ([rollout(1, error="failed"), rollout(0, error="failed")], True),
        ([], True),
    ],
)
def test_flat_means_equal_valid_rewards(rollouts: list[Rollout], flat: bool) -> None:
    assert Group(Example("a", "?", "3"), ModelInput(()), tuple(rollouts)).is_flat is flat


def test_rewards_are_in_order() -> None:
    group = Group(Example("a", "?", "3"), ModelInput(()), (rollout(1), rollout(0.5)))
    assert group.rewards_G.tolist() == [1, 0.5] and group.rewards_G.dtype == np.float32
