"""Sampled answers: parts that are always 0, chance, and the share of flat groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seegrad.preflight.answers import Sampled, chance_level, check_answers
from seegrad.preflight.flatness import expected_flat
from seegrad.types import Completion, Example
from tests.preflight.subjects import Plain, findings


def completion(reason: str = "stop", length: int = 5) -> Completion:
    return Completion(tuple(range(length)), np.zeros(length, np.float32), reason, "x")  # type: ignore[arg-type]


def sampled(right_PG: list[list[int]], **changes: Any) -> Sampled:
    """Answers that are right where `right_PG` is 1; the part `think` is 0 for all."""
    grades = tuple(tuple(({"right": float(r), "think": 0.0}, float(r), "1", bool(r), None) for r in right_G) for right_G in right_PG)
    parts: dict[str, Any] = {
        "examples": tuple(Example(str(n), "?", "ABCD"[n % 4], choices=("a", "b", "c", "d")) for n in range(len(right_PG))),
        "completions_PG": tuple(tuple(completion() for _ in right_G) for right_G in right_PG),
        "grades_PG": grades,
    }
    return Sampled(**{**parts, **changes})


def found(item: Sampled, group_size: int = 8) -> dict[str, Any]:
    return {check.name: check for check in check_answers(item, item.examples, 64, group_size)}


def test_a_part_that_is_0_for_every_answer_is_named() -> None:
    check = found(sampled([[1, 0, 1, 0]] * 8))["reward parts"]
    assert check.passed is None
    assert check.facts["always_zero"] == ["think"] and "0 for all 32 answers: think" in check.detail
    assert "ask for what think looks for" in check.change
    check = found(sampled([[1, 1]] * 8))["reward parts"]
    assert check.facts["constant"] == ["right"]


@pytest.mark.parametrize(
    ("right", "verdict", "words"), [(18, True, "above chance"), (0, None, "below chance"), (7, None, "not to be told from chance")]
)
def test_the_base_is_compared_with_chance(right: int, verdict: bool | None, words: str) -> None:
    check = found(sampled([[int(n < right)] * 2 for n in range(24)]))["chance"]
    assert check.passed is verdict and words in check.detail
    assert check.facts["chance"] == 0.25


def test_chance_levels() -> None:
    two = [Example("a", "?", "A", choices=("x", "y")), Example("b", "?", "d", choices=("1", "2", "3", "4"))]
    assert chance_level(two) == (0.375, "one of the choices at random")
    numbers = [Example("a", "?", "48", choices=("48", "50")), Example("b", "?", "3"), Example("c", "?", "3")]
    assert chance_level(numbers)[0] == 2 / 3 and "always '3'" in chance_level(numbers)[1]
    beyond = [Example("a", "?", "D", choices=("x", "y"))]  # a letter that is none of the two
    assert "most frequent" in chance_level(beyond)[1]


def test_unreadable_and_cut_answers_say_what_to_change() -> None:
    item = sampled([[0, 0]] * 4, completions_PG=((completion("length", 64),) * 2,) * 4)
    check = found(item)["answers"]
    assert check.passed is None and "100% cut at 64 tokens" in check.detail and "raise rollout.max_tokens" in check.change
    grades = tuple(tuple(({"right": 0.0}, 0.0, None, False, None) for _ in range(2)) for _ in range(4))
    check = found(sampled([[0, 0]] * 4, grades_PG=grades))["answers"]
    assert check.facts["format_rate"] == 0 and "in which form to answer" in check.change


def test_a_grader_that_fails_on_a_real_answer_is_a_failed_check() -> None:
    class Fragile(Plain):
        def grade(self, example: Example, text: str) -> Any:
            scores, reward, parsed, right, _ = super().grade(example, text)
            return scores, reward, parsed, right, None if "\\boxed" in text or not text else "reward 'mine' raised ValueError"

    check = findings(rewards=Fragile())["graders"]
    assert check.passed is False and "reward 'mine' raised ValueError" in check.detail


def test_no_signal_at_all_is_said() -> None:
    check = found(sampled([[0] * 4] * 6))["flat groups"]
    assert check.passed is None and "nothing to learn from" in check.detail and check.facts["expected"] == 1


def test_too_many_flat_groups_say_what_a_larger_group_would_do() -> None:
    check = found(sampled([[1] * 4] * 12 + [[0] * 4] * 2 + [[1, 0, 1, 1]] * 2))["flat groups"]
    assert check.passed is None
    assert check.facts["expected"] > 0.5 > 0 and check.facts["at_twice_the_group_size"] < check.facts["expected"]
    assert "rollout.group_size=16" in check.change and "harder questions" in check.change


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (1.0, 1.0), (0.5, 3.0), (8.0, 8.0)])
def test_the_estimate_of_flat_groups_is_right_where_the_truth_is_known(a: float, b: float) -> None:
    """Success probabilities from a Beta, four answers each; the truth for groups of 8 is E[p⁸ + (1 − p)⁸]. Plugged-in shares are far off."""
    generator = np.random.default_rng(0)
    p = generator.beta(a, b, 400)
    rewards_PG = generator.binomial(1, p[:, None], (400, 4)).astype(float).tolist()
    moment = generator.beta(a, b, 200_000)
    truth = float((moment**8 + (1 - moment) ** 8).mean())
    estimate = expected_flat(rewards_PG, 8)
    assert estimate.low - 0.03 <= truth <= estimate.high + 0.03 and abs(estimate.estimate - truth) < 0.06
    shares = np.array(rewards_PG).mean(1)
    assert float((shares**8 + (1 - shares) ** 8).mean()) > truth + 0.06


def test_many_values_are_rarely_flat() -> None:
    generator = np.random.default_rng(1)
    assert expected_flat(generator.random((20, 4)).tolist(), 8).estimate < 0.01
