"""Graders before they cost anything: the gold answer of every row must be right, other answers wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from seegrad.preflight.check import Check
from seegrad.types import Answer, Example

FOOLED = 0.1  # share of wrong answers that may be graded as right: golds such as 12 and twelve are the same answer
SHOWN = 3


class Grades(Protocol):
    """What the checks need of rewards: (scores by part, reward, parsed, correct, error) of every answer of every group."""

    def grade_groups(self, groups: Sequence[tuple[Example, Sequence[str | Answer]]], /) -> Sequence[Sequence[Any]]: ...


def gold_text(example: Example) -> str:
    r"""An answer that a grader must accept: the question's own words, then the gold answer in a box (or as it stands when it brings its box).

    >>> gold_text(Example(id="a", question=r"How many circles? Answer in \boxed{}.", answer="3"))
    'How many circles? Answer in .\n\\boxed{3}'
    """
    words = example.question.replace("\\boxed{}", "").replace("<image>", "").strip()
    return f"{words}\n{example.answer}" if "\\boxed" in example.answer else f"{words}\n\\boxed{{{example.answer}}}"


def check_gold(rewards: Grades, rows: Sequence[Example]) -> Check:
    """Every gold answer graded against itself."""
    grades = [group[0] for group in rewards.grade_groups([(row, [gold_text(row)]) for row in rows])]
    errors = [str(grade[4]) for grade in grades if grade[4] is not None]
    wrong = [(row, grade) for row, grade in zip(rows, grades, strict=True) if grade[4] is None and not grade[3]]
    parts: dict[str, list[float]] = {}
    for grade in grades:
        for name, value in grade[0].items():
            parts.setdefault(name, []).append(value)
    means = {name: float(np.mean(values)) for name, values in parts.items()}
    right = len(rows) - len(errors) - len(wrong)
    facts = {"rows": len(rows), "right": right, "errors": len(errors), "wrong_ids": [row.id for row, _ in wrong], "mean_by_part": means}
    name, counts = "gold answers", f"{right:,} of {len(rows):,} are graded as right"
    if errors:
        return Check(
            name, False, f"{counts}; {len(errors)} could not be graded, the first: {errors[0]}", "repair that grader or that gold answer", facts
        )
    if wrong:
        shown = ", ".join(f"{row.id}: {row.answer!r} read as {grade[2]!r}" for row, grade in wrong[:SHOWN])
        change = "choose the part whose answers have this form (`seegrad list` names the rewards), or set these gold answers right"
        return Check(name, False, f"{counts}; {len(wrong)} are not ({shown})", change, facts)
    return Check(name, True, f"{counts}; mean by part: {', '.join(f'{part} {value:.2f}' for part, value in means.items())}", facts=facts)


def check_wrong(rewards: Grades, rows: Sequence[Example]) -> Check:
    """Each row graded with the gold of the next row that has another one, and with an empty text."""
    answers = _others(rows)
    groups: list[tuple[Example, Sequence[str | Answer]]] = [
        (row, ["", *([] if other is None else [gold_text(other)])]) for row, other in zip(rows, answers, strict=True)
    ]
    tried = sum(len(texts) for _, texts in groups)
    fooled = [
        (row, text)
        for (row, texts), grades in zip(groups, rewards.grade_groups(groups), strict=True)
        for text, grade in zip(texts, grades, strict=True)
        if grade[3]
    ]
    facts = {"tried": tried, "graded_right": len(fooled)}
    detail = f"{tried - len(fooled):,} of {tried:,} wrong or empty answers are graded as wrong"
    if len(fooled) <= tried * FOOLED:
        return Check("wrong answers", True, detail, facts=facts)
    row, text = fooled[0]
    last = str(text).splitlines()[-1] if text else ""
    return Check("wrong answers", False, f"{detail}; {row.id} accepts {last!r} for {row.answer!r}", "use a grader that looks at the answer", facts)


def most_frequent(answers: Sequence[str]) -> tuple[str, float]:
    """The most frequent gold answer and its share: what saying always the same would get right.

    >>> most_frequent(["3", "2", "3", "4"])
    ('3', 0.5)
    """
    (answer, count), *_ = Counter(answers).most_common(1)
    return answer, count / len(answers)


def _others(rows: Sequence[Example]) -> list[Example | None]:
    """For each row the next one (after the last comes the first) with another gold; None when all golds are the same."""
    others: list[Example | None] = [None] * len(rows)
    following: Example | None = None
    for position in range(2 * len(rows) - 1, -1, -1):  # twice round, so that every row has seen all that follow it
        row, after = rows[position % len(rows)], rows[(position + 1) % len(rows)]
        following = after if after.answer != row.answer else following
        others[position % len(rows)] = following
    return others
