"""Several graders, one reward; a grader that fails is a named fact and never a zero."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seegrad.config import DataConfig
from seegrad.data.shapes import choice as choice_rows
from seegrad.data.shapes import count as count_rows
from seegrad.data.shapes import ground as ground_rows
from seegrad.errors import UsageError
from seegrad.rewards.base import Grade, Rewards
from seegrad.types import Answer, Example

ROW = Example("row-7", "?", "3", meta={"kind": "circle"})
RIGHT, WRONG, BARE = r"circles: 1+2=3. \boxed{3}", r"circles: 2. \boxed{2}", "3"


def user(tmp_path: Path, body: str, name: str = "mine.py") -> str:
    path = tmp_path / name
    path.write_text("from seegrad.types import Score\n\n" + body, encoding="utf-8")
    return f"{path}:grade"


def test_parts_are_logged_unweighted_and_summed_weighted() -> None:
    rewards = Rewards({"count": 1.0, "description": 0.5, "format": 0.2})
    assert rewards.grade(ROW, RIGHT) == Grade({"count": 1.0, "description": 1.0, "format": 1.0}, 1.7, "3", True, None)
    assert rewards.grade(ROW, WRONG) == Grade({"count": 0.0, "description": 1.0, "format": 1.0}, 0.7, "2", False, None)
    assert rewards.grade(ROW, BARE) == Grade({"count": 0.0, "description": 0.0, "format": 0.0}, 0.0, None, False, None)


def test_the_order_of_the_parts_does_not_change_who_judges() -> None:
    assert Rewards({"format": 0.2, "description": 0.5, "count": 1.0}).grade(ROW, WRONG)[2:] == ("2", False, None)


@pytest.mark.parametrize(("rows", "part"), [(count_rows, "count"), (choice_rows, "choice"), (ground_rows, "iou")])
def test_gold_answers_score_one_and_the_next_rows_answer_does_not_always(rows: object, part: str) -> None:
    examples = [rows("dev", DataConfig())[index] for index in range(12)]  # type: ignore[operator]
    rewards = Rewards({part: 1.0})
    assert all(rewards.grade(row, f"\\boxed{{{row.answer}}}").reward == 1 for row in examples)
    shifted = [rewards.grade(row, f"\\boxed{{{other.answer}}}").reward for row, other in itertools.pairwise(examples)]
    assert min(shifted) < 1


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        ("1", 1.0),
        ("0.25", 0.25),
        ("True", 1.0),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('fractions').Fraction(1, 2)", 0.5),
        ("-2", -2.0),
    ],
)
def test_a_plain_number_of_the_users(tmp_path: Path, returned: str, value: float) -> None:
    address = user(tmp_path, f"def grade(example, text):\n    return {returned}\n")
    assert Rewards({address: 2.0}).grade(ROW, "anything") == Grade({address: value}, 2 * value, "anything", value >= 1, None)


def test_a_score_of_the_users_and_its_opinion(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(example, text):\n    return Score(0.5, parsed=example.answer, correct=text == 'yes')\n")
    assert Rewards({address: 1.0, "format": 1.0}).grade(ROW, "yes") == Grade({address: 0.5, "format": 0.0}, 0.5, "3", True, None)
    assert Rewards({address: 1.0}, isolate=False).grade(ROW, "no").correct is False


def test_a_score_without_an_opinion_leaves_the_verdict_to_the_value(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(example, text):\n    return Score(float(text), parsed='p')\n")
    rewards = Rewards({address: 1.0}, isolate=False)
    assert rewards.grade(ROW, "1") == Grade({address: 1.0}, 1.0, "p", True, None)
    assert rewards.grade(ROW, "0.9") == Grade({address: 0.9}, 0.9, "p", False, None)


def test_a_raising_grader_names_file_line_and_sample_and_is_no_zero(tmp_path: Path) -> None:
    address = user(
        tmp_path, "def grade(example, text):\n    answer = text\n    return helper(answer)\n\n\ndef helper(answer):\n    return int(answer)\n"
    )
    scores, reward, _, correct, error = Rewards({"count": 1.0, address: 1.0}).grade(ROW, "many\nlines")
    assert address not in scores and scores == {"count": 0.0}
    assert reward == 0 and not correct
    assert error is not None and "\n" not in error
    assert f"{tmp_path / 'mine.py'}:9" in error and "'row-7'" in error and "ValueError" in error


@pytest.mark.parametrize(
    "returned", ["None", "'1'", "float('nan')", "float('inf')", "Score(float('nan'))", "Score(None)", "[1]", "{}", "__import__('numpy').ones(3)"]
)
def test_what_is_no_finite_number_is_an_error(tmp_path: Path, returned: str) -> None:
    address = user(tmp_path, f"def grade(example, text):\n    return {returned}\n")
    grade = Rewards({address: 1.0}, isolate=False).grade(ROW, RIGHT)
    assert grade.scores == {} and grade.error is not None
    assert f"{tmp_path / 'mine.py'}:3" in grade.error and "'row-7'" in grade.error and "expected a finite number" in grade.error


def test_a_sum_that_overflows_is_an_error(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(example, text):\n    return 1e308\n")
    assert "not a finite number" in str(Rewards({address: 10.0}, isolate=False).grade(ROW, "x").error)


def test_every_failed_part_is_told(tmp_path: Path) -> None:
    one = user(tmp_path, "def grade(example, text):\n    raise RuntimeError('first')\n", "one.py")
    two = user(tmp_path, "class Grader:\n    def __call__(self, example, text):\n        raise KeyError('second')\n\n\ngrade = Grader()\n", "two.py")
    error = str(Rewards({one: 1.0, two: 1.0}, isolate=False).grade(ROW, "x").error)
    assert "first" in error and "one.py:4" in error and "second" in error and "two.py:5" in error


def test_a_verdict_is_a_truth_value_and_what_was_read_is_text(tmp_path: Path) -> None:
    wrong = user(tmp_path, "def grade(example, text):\n    return Score(1.0, parsed='3', correct='no')\n", "wrong.py")
    assert "expected Score.correct to be True, False or None" in str(Rewards({wrong: 1.0}, isolate=False).grade(ROW, "x").error)
    number = user(tmp_path, "def grade(example, text):\n    return Score(1.0, parsed=3, correct=__import__('numpy').bool_(True))\n", "number.py")
    assert Rewards({number: 1.0}, isolate=False).grade(ROW, "x")[2:] == ("3", True, None)


def test_a_grader_that_exits_does_not_end_the_run(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(example, text):\n    raise SystemExit(0)\n")
    assert "raised SystemExit" in str(Rewards({address: 1.0}, isolate=False).grade(ROW, "x").error)


def test_ctrl_c_in_a_grader_is_not_swallowed(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(example, text):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        Rewards({address: 1.0}, isolate=False).grade(ROW, "x")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, r"reward\.parts is empty"),
        ({"coutn": 1.0}, "did you mean 'count'"),
        ({"nowhere.py:grade": 1.0}, "does not exist"),
        ({"count": float("nan")}, "finite"),
        ({"math:pi": 1.0}, "expected a function"),
    ],
)
def test_what_cannot_be_used_stops_before_it_costs_anything(parts: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Rewards(parts)


def test_a_users_file_that_does_not_load_names_the_line(tmp_path: Path) -> None:
    address = user(tmp_path, "grade = 1 / 0\n")
    with pytest.raises(UsageError, match=r"mine\.py:3 failed to load: ZeroDivisionError"):
        Rewards({address: 1.0}, isolate=False)


def test_equal_answers_get_exactly_equal_rewards() -> None:
    """Flat groups are found by equality, so a reward must not depend on anything but the text."""
    rewards = Rewards({"count": 1.0, "description": 0.1, "format": 0.2})
    assert len({rewards.grade(ROW, RIGHT).reward for _ in range(5)}) == 1
    assert np.float32(rewards.grade(ROW, RIGHT).reward) != np.float32(rewards.grade(ROW, WRONG).reward)


def test_the_sum_is_clipped_and_the_parts_are_not(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(example, text):\n    return float(text)\n")
    rewards = Rewards({address: 2.0}, isolate=False, minimum=-0.5, maximum=1.0)
    assert [(grade.reward, grade.scores[address]) for grade in rewards.grade_groups([(ROW, ["-3", "-0.2", "0.3", "7"])])[0]] == [
        (-0.5, -3.0),
        (-0.4, -0.2),
        (0.6, 0.3),
        (1.0, 7.0),
    ]


def test_negative_weights_subtract_and_weight_zero_only_logs() -> None:
    grade = Rewards({"count": 1.0, "format": -0.25, "description": 0.0}).grade(ROW, RIGHT)
    assert grade == Grade({"count": 1.0, "format": 1.0, "description": 1.0}, 0.75, "3", True, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"minimum": 1.0, "maximum": 0.0}, r"reward\.minimum is 1\.0 and reward\.maximum 0\.0"),
        ({"minimum": float("nan")}, "expected minimum ≤ maximum"),
        ({"settings": {"cuont": {"x": 1}}}, r"reward\.settings\.cuont: there is no reward part 'cuont'; did you mean 'count'"),
        ({"settings": {"count": {"x": 1}}}, "reward 'count' takes no setting 'x'; it takes none"),
    ],
)
def test_settings_that_mean_nothing_stop_before_it_costs_anything(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Rewards({"count": 1.0}, **arguments)


def test_every_answer_of_every_group_is_graded_against_its_own_row() -> None:
    """Distinct gold answers, groups of unequal size, a row without answers: nothing is repeated, left out or moved."""
    rows = [Example(f"row-{n}", "?", str(n)) for n in range(6)]
    groups = [(row, [f"\\boxed{{{n}}}" for n in range(size)]) for row, size in zip(rows, (1, 2, 3, 0, 7, 6), strict=True)]
    grades = Rewards({"count": 1.0, "format": 0.1}).grade_groups(groups)
    assert [[grade.correct for grade in group] for group in grades] == [
        [True],
        [False, True],
        [False, False, True],
        [],
        [False, False, False, False, True, False, False],
        [False, False, False, False, False, True],
    ]
    assert Rewards({"count": 1.0}).grade_groups([]) == []


def test_length_and_truncation_reach_the_graders(tmp_path: Path) -> None:
    address = user(tmp_path, "def grade(text, truncated, num_tokens):\n    return num_tokens + 1000 * truncated\n")
    grades = Rewards({address: 1.0}, isolate=False).grade_groups([(ROW, [Answer("a", 7), Answer("b", 9, truncated=True), "c"])])[0]
    assert [grade.reward for grade in grades] == [7, 1009, 0]
