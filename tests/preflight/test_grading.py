"""Graders on gold and on wrong answers."""

from __future__ import annotations

import dataclasses
from typing import Any

from seegrad.preflight.grading import check_gold, check_wrong, gold_text, most_frequent
from seegrad.rewards.base import Rewards
from seegrad.types import Example
from tests.fakes import examples, first_digit, rewards
from tests.preflight.subjects import Plain, findings


def test_a_grader_that_rejects_gold_fails_and_names_the_rows() -> None:
    rows = [dataclasses.replace(row, answer="nine") for row in examples()]
    check = findings(rewards=rewards(), train=rows[:8], held_out=rows[8:])["gold answers"]
    assert check.passed is False
    assert "0 of 12 are graded as right" in check.detail and "row-0: 'nine'" in check.detail
    assert check.facts["wrong_ids"] == [row.id for row in rows]


def test_one_bad_gold_among_many_is_found() -> None:
    rows = [Example(f"r{n}", "Pick one.", "ABCD"[n % 4], choices=("1", "2", "3", "4")) for n in range(400)]
    rows[311] = dataclasses.replace(rows[311], answer="")
    graders = Rewards({"choice": 1.0})
    assert check_gold(graders, rows[:300]).passed is True
    check = check_gold(graders, rows)
    assert check.passed is False and "'r311'" in check.detail and check.facts["right"] == 399
    assert check.facts["errors"] == 1


def test_a_grader_that_accepts_anything_fails() -> None:
    class Generous(Plain):
        def grade(self, example: Example, text: str) -> Any:
            return {"right": 1.0}, 1.0, text, True, None

    check = findings(rewards=Generous())["wrong answers"]
    assert check.passed is False
    assert "0 of 24" in check.detail


def test_a_grader_that_raises_is_quoted() -> None:
    class Broken(Plain):
        def grade(self, example: Example, text: str) -> Any:
            return {}, 0.0, None, False, f"reward 'mine' raised KeyError: 'label' (mine.py:3, sample {example.id!r})"

    check = findings(rewards=Broken())["gold answers"]
    assert check.passed is False
    assert "mine.py:3" in check.detail


def test_wrong_answers_are_other_golds() -> None:
    asked: list[tuple[str, str]] = []

    class Listens(Plain):
        def grade(self, example: Example, text: str) -> Any:
            asked.append((example.answer, text.rpartition("{")[2].rstrip("}")))
            return super().grade(example, text)

    rows = [Example(str(n), "?", answer) for n, answer in enumerate(["1", "1", "2", "1"])]
    assert check_wrong(Listens(), rows).passed is True
    assert asked == [("1", ""), ("1", "2"), ("1", ""), ("1", "2"), ("2", ""), ("2", "1"), ("1", ""), ("1", "2")]
    asked.clear()
    assert check_wrong(Listens(), rows[:2]).facts["tried"] == 2  # all golds are the same: only the empty text is tried


def test_gold_text_asks_nothing_of_the_grader_but_the_answer() -> None:
    example = examples()[0]
    assert first_digit(example, gold_text(example)).value == 0.0
    asked = dataclasses.replace(example, question="<image>数一数。把答案写在\\boxed{}里。")
    assert gold_text(asked) == f"数一数。把答案写在里。\n\\boxed{{{example.answer}}}"
    boxed = dataclasses.replace(example, question="x?", answer=r"\boxed{\frac{1}{2}}")
    assert gold_text(boxed) == "x?\n\\boxed{\\frac{1}{2}}"


def test_most_frequent_gold() -> None:
    assert most_frequent(["4", "3", "3"]) == ("3", 2 / 3)
