"""Groups become datums: shifted by one, nothing of the prompt is trained on, and only attempts that carry signal are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seegrad.batch import to_datums
from seegrad.types import Completion, Datum, Example, Group, ImageChunk, ModelInput, Rollout, TextChunk

ROW = Example("row-7", "?", "3")
PROMPT = ModelInput((TextChunk((1, 2)), ImageChunk(b"picture", "png", 3), TextChunk((4, 5))))
PLACEHOLDER = 99


def attempt(reward: float, tokens: Sequence[int] = (7, 8, 9), advantage: float = 0.5, error: str | None = None) -> Rollout:
    logprobs = -np.arange(1, len(tokens) + 1, dtype=np.float32)
    return Rollout(Completion(tuple(tokens), logprobs, "stop", ""), {"r": reward}, reward, advantage=advantage, error=error)


def group(*rollouts: Rollout, prompt: ModelInput = PROMPT) -> Group:
    return Group(ROW, prompt, rollouts)


def test_one_datum_in_full() -> None:
    (datum, _), origins = to_datums([group(attempt(1.0), attempt(0.0, advantage=-0.5))])
    assert datum.model_input == ModelInput((TextChunk((1, 2)), ImageChunk(b"picture", "png", 3), TextChunk((4, 5, 7, 8))))
    assert datum.target_tokens_T.tolist() == [0, 0, 0, 0, 0, 0, 7, 8, 9]
    assert datum.inputs["logprobs"].tolist() == [0, 0, 0, 0, 0, 0, -1, -2, -3]
    assert datum.inputs["advantages"].tolist() == [0, 0, 0, 0, 0, 0, 0.5, 0.5, 0.5]
    assert datum.inputs["mask"].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert origins == [(0, 0), (0, 1)]


def violations(datum: Datum, prompt: ModelInput, rollout: Rollout) -> list[str]:
    """What is wrong with a datum, said from the definition: position t predicts the token at t + 1 of prompt and completion."""
    whole = prompt.token_ids(PLACEHOLDER) + list(rollout.completion.tokens_T)
    found = [] if datum.model_input.token_ids(PLACEHOLDER) == whole[:-1] else ["input"]
    start = len(prompt) - 1
    if any(datum.target_tokens_T[t] != whole[t + 1] for t in range(start, len(whole) - 1)):
        found.append("targets")
    if datum.target_tokens_T[:start].any() or any(array[:start].any() for array in datum.inputs.values()):
        found.append("prompt")
    if datum.inputs["mask"].sum() != len(rollout.completion.tokens_T):
        found.append("mask")
    if datum.inputs["logprobs"][start:].tolist() != rollout.completion.logprobs_T.tolist():
        found.append("logprobs")
    return found


@given(
    prompts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    tokens=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    image_at=st.integers(0, 3),
)
def test_every_shape_of_prompt_keeps_the_definition(prompts: list[int], tokens: list[int], image_at: int) -> None:
    chunks: list[TextChunk | ImageChunk] = [TextChunk(tuple(range(length))) for length in prompts]
    chunks.insert(image_at, ImageChunk(b"picture", "png", 2))
    prompt = ModelInput(tuple(chunks))
    rollout = attempt(1.0, tokens)
    datums, _ = to_datums([group(rollout, attempt(0.0), prompt=prompt)])
    assert violations(datums[0], prompt, rollout) == []
    assert datums[0].active_T.sum() == len(tokens)


def test_the_definition_notices_planted_errors() -> None:
    rollout = attempt(1.0)
    (datum, _), _ = to_datums([group(rollout, attempt(0.0))])
    shifted = Datum(datum.model_input, np.roll(datum.target_tokens_T, 1), datum.inputs)
    assert violations(shifted, PROMPT, rollout) == ["targets", "prompt"]
    early = {**datum.inputs, "mask": np.roll(datum.inputs["mask"], -1)}
    assert violations(Datum(datum.model_input, datum.target_tokens_T, early), PROMPT, rollout) == ["prompt"]
    everywhere = {**datum.inputs, "mask": np.ones(len(datum), np.float32)}
    assert violations(Datum(datum.model_input, datum.target_tokens_T, everywhere), PROMPT, rollout) == ["prompt", "mask"]
    later = {**datum.inputs, "logprobs": np.roll(datum.inputs["logprobs"], 1)}
    assert violations(Datum(datum.model_input, datum.target_tokens_T, later), PROMPT, rollout) == ["prompt", "logprobs"]


def without_credit(*rewards: float, error: str | None = None) -> list[Rollout]:
    return [attempt(reward, advantage=0.0, error=error) for reward in rewards]


def test_groups_without_credit_and_failed_attempts_are_left_out() -> None:
    flat = group(*without_credit(0.7, 0.7, 0.7))
    failed = group(attempt(1.0), attempt(0.0, error="grader failed"), attempt(0.0), attempt(1.0))
    flat_but_for_a_failure = group(*without_credit(1.0, 1.0), *without_credit(0.0, error="grader failed"))
    nothing_valid = group(*without_credit(1.0, 0.0, error="x"))
    datums, origins = to_datums([flat, failed, flat_but_for_a_failure, nothing_valid])
    assert origins == [(1, 0), (1, 2), (1, 3)]
    assert len(datums) == 3


def test_a_group_whose_rewards_are_equal_but_whose_credit_is_not_is_trained_on() -> None:
    """Reward parts may earn different credit where their sum is the same."""
    assert to_datums([group(attempt(1.0, advantage=0.3), attempt(1.0, advantage=-0.3))])[1] == [(0, 0), (0, 1)]


def test_every_attempt_is_trained_on_or_left_out_never_both() -> None:
    groups = [group(*without_credit(1.0, 1.0)), group(attempt(1.0), attempt(0.0, error="x"), attempt(0.0)), group(attempt(0.0), attempt(2.0))]
    trained, left_out = (to_datums(groups, trained=value)[1] for value in (True, False))
    assert left_out == [(0, 0), (0, 1), (1, 1)]
    assert sorted(trained + left_out) == [(index, number) for index, item in enumerate(groups) for number in range(len(item.rollouts_G))]


def test_nearly_equal_rewards_are_not_flat() -> None:
    datums, _ = to_datums([group(attempt(1.0), attempt(1.0 + 1e-12))])
    assert len(datums) == 2


def test_an_attempt_with_no_advantage_still_counts_in_the_mask() -> None:
    datums, _ = to_datums([group(attempt(1.0), attempt(0.5, advantage=0.0), attempt(0.0))])
    assert [datum.inputs["mask"].sum() for datum in datums] == [3, 3, 3]


def test_a_single_token_and_no_token() -> None:
    datums, origins = to_datums([group(attempt(1.0, tokens=[7]), attempt(0.0, tokens=[]), attempt(0.5))])
    assert origins == [(0, 0), (0, 2)]
    assert datums[0].model_input == PROMPT and datums[0].target_tokens_T.tolist() == [0, 0, 0, 0, 0, 0, 7]
    assert to_datums([]) == ([], [])
