"""Every form of a reward function, called here and in worker processes; and what stops before it costs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seegrad import registry
from seegrad.errors import UsageError
from seegrad.rewards.base import Grade, Rewards
from seegrad.rewards.calling import load_part
from seegrad.types import Answer, Example

GRADERS = Path(__file__).with_name("graders.py")
ROW = Example("row-7", "?", "aa", images=(b"12345", b"678"), choices=("p", "q"), meta={"number": 40})
ANSWERS = [Answer("aa", 10), Answer("x aa", 20, truncated=True), Answer("aa", 40), Answer("")]

FORMS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "plain": ({}, [1, 0, 1, 0]),
    "swapped": ({}, [1, 0, 1, 0]),
    "by_position": ({}, [1, 0, 1, 0]),
    "text_alone": ({}, [2, 4, 2, 0]),
    "counted": ({}, [10, -80, 40, 0]),
    "tunable": ({"limit": 1, "scale": 2, "word": "a"}, [2, 2, 2, 0]),
    "anything": ({"one": 1, "two": 2.5}, [3.5] * 4),
    "pictures": ({}, [8] * 4),
    "described": ({}, [42] * 4),
    "score": ({}, [0.5] * 4),
    "group": ({}, [0.5, 0.25, 0.5, 0.25]),
    "group_counted": ({}, [0.25, -0.5, 1, 0]),
    "group_mixed": ({}, [1, 0.25, 1, 0.25]),
    "later": ({}, [1, 0, 1, 0]),
    "later_group": ({"base": 0.5}, [2.5, 4.5, 2.5, 0.5]),
    "wrapped_later": ({}, [1, 0, 1, 0]),
    "judge": ({}, [4, 0, 4, 0]),
    "method": ({}, [8, 0, 8, 0]),
    "later_judge": ({}, [3, 0, 3, 0]),
    "part": ({"word": "a"}, [2, 2, 2, 0]),
    "later_part": ({}, [3, 5, 3, 1]),
}
ERRORS = {  # what every answer is told, and the line that is named: a piece of the source
    "raises": ("raised ZeroDivisionError", "return 1.0 / (len(text) - len(text))"),
    "raises_later": ("raised LookupError: no such thing", 'raise LookupError("no such thing")'),
    "exits": ("raised SystemExit: 3", "raise SystemExit(3)"),
    "exits_later": ("raised SystemExit: 3", "raise SystemExit(3)"),
    "unspeakable": ("raised Unspeakable: <Unspeakable whose text raises RuntimeError>", "raise Unspeakable"),
    "deep": ("raised RecursionError", "return deep(example, text)"),
    "group_short": ("returned [1.0] of 1, expected a list of 4 numbers or Scores", "def group_short"),
    "group_one_number": ("returned 1.0, expected a list of 4 numbers or Scores", "def group_one_number"),
    "group_of_text": ("returned '1111', expected a list of 4 numbers or Scores", "def group_of_text"),
}


def address(name: str) -> str:
    return f"{GRADERS}:{name}"


def all_forms(**arguments: Any) -> Rewards:
    settings = {address(name): given for name, (given, _) in FORMS.items() if given}
    return Rewards({address(name): 1.0 for name in FORMS}, settings=settings, **arguments)


def lines_with(piece: str) -> list[str]:
    return [f"graders.py:{number}, " for number, line in enumerate(GRADERS.read_text().splitlines(), 1) if piece in line]


@pytest.fixture(scope="module")
def in_workers() -> list[Grade]:
    with all_forms() as rewards:
        return rewards.grade_groups([(ROW, ANSWERS)])[0]


@pytest.mark.parametrize("name", FORMS)
def test_every_form(name: str) -> None:
    settings, expected = FORMS[name]
    rewards = Rewards({address(name): 1.0}, settings={address(name): settings}, isolate=False)
    grades = rewards.grade_groups([(ROW, ANSWERS)])[0]
    rewards.close()
    assert [grade.error for grade in grades] == [None] * 4
    assert [grade.reward for grade in grades] == expected


def test_every_form_says_the_same_in_a_worker(in_workers: list[Grade]) -> None:
    with all_forms(isolate=False) as rewards:
        here = rewards.grade_groups([(ROW, ANSWERS)])[0]
    assert in_workers == here
    assert [grade.scores[address("plain")] for grade in in_workers] == [1, 0, 1, 0]
    assert [(grade.parsed, grade.correct) for grade in in_workers] == [("aa", True), ("x aa", False), ("aa", True), (None, False)]


@pytest.mark.parametrize("isolate", [False, True])
def test_what_goes_wrong_names_line_and_sample_and_is_no_zero(isolate: bool) -> None:
    with Rewards({address(name): 1.0 for name in ERRORS}, isolate=isolate) as rewards:
        grades = rewards.grade_groups([(ROW, ANSWERS)])[0]
    assert [grade.scores for grade in grades] == [{}] * 4
    for name, (message, piece) in ERRORS.items():
        told = next(part for part in str(grades[3].error).split("; ") if f"{name}'" in part)
        assert message in told and "sample 'row-7'" in told
        assert any(place in told for place in lines_with(piece)), (told, lines_with(piece))


def test_one_bad_element_of_a_group_is_that_answers_error() -> None:
    grades = Rewards({address("group_broken"): 1.0}, isolate=False).grade_groups([(ROW, ANSWERS)])[0]
    assert [grade.error is None for grade in grades] == [True, False, True, False]
    assert "returned None, expected a finite number or a Score" in str(grades[1].error)


@pytest.mark.parametrize("isolate", [False, True])
def test_async_calls_run_side_by_side_and_not_too_many(isolate: bool) -> None:
    """The first calls return only when 64 are under way, and no more ever are; one group is larger than that."""
    name = address("meeting")
    with Rewards({name: 1.0}, settings={name: {"meet_at": 64}}, isolate=isolate) as rewards:
        grades = rewards.grade_groups([(ROW, ANSWERS[:1] * size) for size in (40, 24, 100, 1)])
    assert [len(group) for group in grades] == [40, 24, 100, 1]
    assert {grade.reward for group in grades for grade in group} == {64.0}


def test_an_async_grader_here_has_a_limit_even_if_it_does_not_let_itself_be_cancelled() -> None:
    with Rewards({address("does_later"): 1.0}, isolate=False, timeout=0.5) as rewards:
        grades = rewards.grade_groups([(ROW, ["aa", "wait 600", "stubborn", "no"])])[0]
        assert [grade.scores.get(address("does_later")) for grade in grades] == [1.0, None, None, 0.0]
        assert all("took longer than 0.5 s (reward.timeout)" in str(grade.error) for grade in grades[1:3])
        assert rewards.grade(ROW, "aa").reward == 1


def test_grading_from_inside_an_event_loop() -> None:
    """As in a notebook: the caller's thread has a running loop of its own."""
    import asyncio

    async def cell() -> Grade:
        with Rewards({address("later"): 1.0}, isolate=False) as rewards:
            return rewards.grade(ROW, "aa")

    assert asyncio.run(cell()).reward == 1


def user(tmp_path: Path, body: str) -> str:
    (tmp_path / "mine.py").write_text(body, encoding="utf-8")
    return f"{tmp_path / 'mine.py'}:f"


@pytest.mark.parametrize(
    ("body", "settings", "message"),
    [
        ("def f(example, text, limit): return 1", {}, r"its parameter 'limit' has no value .*set reward\.settings\..*mine\.py:f\.limit=…"),
        ("def f(example, txet): return 1", {}, "'txet' has no value .did you mean 'text'"),
        (
            "def f(prompts, completions, **kwargs): return 1",
            {},
            r"'prompts' has no value .*\(example, text\) or, for a whole group, \(example, texts\)",
        ),
        ("def f(example): return 1", {}, r"takes \(example\), expected \(example, text\)"),
        ("def f(): return 1", {}, r"takes \(\), expected"),
        ("def f(example, text, texts): return 1", {}, "takes both text and texts"),
        ("def f(example, text, limit=1): return 1", {"limti": 2}, "takes no setting 'limti'; did you mean 'limit'"),
        ("def f(example, text): return 1", {"limit": 2}, "takes no setting 'limit'; it takes none"),
        ("def f(example, text): return 1", {"text": "x"}, r"reward\.settings\..*\.text cannot be set"),
        ("def f(example, text, limit: int): return 1", {"limit": "many"}, r"\.limit is 'many', expected int"),
        ("def f(example, text, limit: int): return 1", {"limit": True}, r"\.limit is True, expected int"),
        ("def f(example, text, on: bool = False): return 1", {"on": 1}, r"\.on is 1, expected bool"),
        ("class f:\n    def __call__(self, example, text): return 1", {}, "is a class, expected a function"),
        ("f = 3", {}, "is int, expected a function"),
        ("f = max", {}, "does not say what it takes"),
    ],
)
def test_what_cannot_be_called_stops_before_it_costs_anything(tmp_path: Path, body: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_part(user(tmp_path, body), settings)
    assert "\n" not in str(caught.value)


def test_settings_of_the_right_kind_are_taken(tmp_path: Path) -> None:
    name = user(
        tmp_path,
        "from __future__ import annotations\n\ndef f(example: Undefined, text, a: float, b: str = '', **more): return a + len(b) + more['c']",
    )
    rewards = Rewards({name: 1.0}, settings={name: {"a": 1, "b": "xy", "c": 10}}, isolate=False)
    assert rewards.grade(ROW, "").reward == 13


def test_every_registered_reward_can_be_loaded() -> None:
    assert [name for name in registry.names("reward") if load_part(name, {}).name != name] == []
