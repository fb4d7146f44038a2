"""Drawn data sets: deterministic, disjoint, true to their own answers, and unanswerable without the picture."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seegrad.config import DataConfig
from seegrad.data import shapes
from seegrad.data.shapes import KINDS, LETTERS, SIZE, SPLIT_SIZES, Task, make_example
from seegrad.errors import DataError
from seegrad.rewards.grounding import iou
from seegrad.types import Example

TASKS: tuple[Task, ...] = ("count", "choice", "ground")
DATA = DataConfig()


def draw(task: Task, split: str, number: int, **settings: Any) -> list[Example]:
    return list(getattr(shapes, task)(split, DataConfig(**settings))[:number]) if settings else [drawn(task, split, index) for index in range(number)]


@cache
def drawn(task: Task, split: str, index: int) -> Example:
    """Drawn once for all tests that look at it."""
    example: Example = getattr(shapes, task)(split, DATA)[index]
    return example


def pixels(example: Example) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(example.images[0])))


def blobs(example: Example, kind: str) -> int:
    """Connected areas of a kind's colour: a count that does not trust the generator."""
    picture = pixels(example).astype(int)
    red, green, blue = (picture[..., channel] for channel in range(3))
    mask = {
        "triangle": (red > green + 60) & (red > blue + 60),
        "circle": (blue > red + 40) & (blue > green + 20),
        "square": (green > red + 25) & (green > blue + 25),
    }[kind]
    todo, found = {(int(r), int(c)) for r, c in zip(*np.nonzero(mask), strict=True)}, 0
    while todo:
        area, edge = 0, [todo.pop()]
        while edge:
            row, column = edge.pop()
            area += 1
            for near in ((row + dr, column + dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1)):
                if near in todo:
                    todo.remove(near)
                    edge.append(near)
        found += area >= 8
    return found


@pytest.mark.parametrize("task", TASKS)
def test_an_example_depends_on_split_seed_and_index_only(task: Task) -> None:
    backwards = [make_example(task, "train", index, DATA) for index in reversed(range(8))][::-1]
    assert backwards == draw(task, "train", 8)
    assert make_example(task, "train", 3, DATA) != make_example(task, "train", 3, DATA, seed=1)
    assert make_example(task, "train", 3, DATA).images != make_example(task, "dev", 3, DATA).images


@pytest.mark.parametrize("task", TASKS)
def test_splits_share_no_picture(task: Task) -> None:
    seen: dict[bytes, str] = {}
    for split in SPLIT_SIZES:
        for example in draw(task, split, 150):
            assert seen.setdefault(example.images[0], split) == split, example.id


def test_the_split_of_a_scene_follows_from_the_scene_alone() -> None:
    """Not chance: a scene drawn for one split can never come up in another."""
    rng = np.random.default_rng(0)
    for split in ("pretrain", "train", "dev", "test"):
        for _ in range(20):
            scene = shapes.draw_scene("count", split, rng)
            assert shapes._HASHED_SPLITS[shapes._scene_hash(scene) % 4] == split


@pytest.mark.parametrize("split", ["train", "ood"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_painted_is_what_is_answered(split: str, kind: str) -> None:
    for example in draw("count", split, 60):
        assert blobs(example, kind) == example.meta["counts"][kind], example.id
        assert example.answer == str(example.meta["counts"][example.meta["kind"]])


def test_shapes_never_touch() -> None:
    for task in TASKS:
        for example in draw(task, "ood", 60):
            boxes = [box[1:] for box in example.meta["boxes"]]
            for index, a in enumerate(boxes):
                assert 0 <= a[0] < a[2] < SIZE and 0 <= a[1] < a[3] < SIZE
                for b in boxes[index + 1 :]:
                    assert a[2] + 1 < b[0] or b[2] + 1 < a[0] or a[3] + 1 < b[1] or b[3] + 1 < a[1], (example.id, a, b)


def test_ood_has_more_of_a_kind_than_any_other_split() -> None:
    for example in draw("count", "ood", 100):
        assert 6 <= max(example.meta["counts"].values()) <= 7
    for split in ("pretrain", "train", "dev", "test"):
        assert all(max(example.meta["counts"].values()) <= 5 for example in draw("count", split, 100))


def test_the_named_shape_is_alone_of_its_kind_and_its_box_is_its_own() -> None:
    for example in draw("ground", "test", 60):
        kind = example.meta["kind"]
        assert example.meta["counts"][kind] == 1
        x1, y1, x2, y2 = (int(value) for value in example.answer.split(","))
        (box,) = [box[1:] for box in example.meta["boxes"] if box[0] == kind]
        assert [x1, y1, x2, y2] == box
        painted = pixels(example)[y1 : y2 + 1, x1 : x2 + 1]
        assert all((painted[edge] < 250).any() for edge in (0, -1)) and all((painted[:, edge] < 250).any() for edge in (0, -1))


def test_options_hold_the_answer_once() -> None:
    for example in draw("choice", "test", 100):
        number = str(example.meta["counts"][example.meta["kind"]])
        assert len(set(example.choices)) == 4 and example.choices[LETTERS.index(example.answer)] == number
        assert all(f"{letter}. {option}" in example.question for letter, option in zip(LETTERS, example.choices, strict=True))


def best_blind_accuracy(train: Sequence[Example], test: Sequence[Example]) -> float:
    """A guesser that has all the text but no picture: the most frequent answer of each question text, or of all when the text is new."""
    by_text: dict[str, Counter[str]] = {}
    for example in train:
        by_text.setdefault(example.question, Counter())[example.answer] += 1
    overall = Counter(example.answer for example in train).most_common(1)[0][0]
    guesses = [by_text[e.question].most_common(1)[0][0] if e.question in by_text else overall for e in test]
    return float(np.mean([guess == example.answer for guess, example in zip(guesses, test, strict=True)]))


@pytest.mark.parametrize(("task", "chance"), [("count", 1 / 5), ("choice", 1 / 4)])
def test_guessing_without_the_picture_scores_at_chance(task: Task, chance: float) -> None:
    number = 600
    accuracy = best_blind_accuracy(draw(task, "train", 2 * number), draw(task, "test", number))
    assert abs(accuracy - chance) < 3 * np.sqrt(chance * (1 - chance) / number), accuracy


def best_blind_box(rows: Sequence[Example]) -> tuple[int, int, int, int]:
    """The one box that overlaps these rows' boxes best: the boxes of the rows themselves are tried."""
    boxes = np.array([[int(side) for side in row.answer.split(",")] for row in rows])
    x1, y1, x2, y2 = (boxes[:, side] for side in range(4))
    width = np.minimum(x2[:, None], x2) - np.maximum(x1[:, None], x1)
    height = np.minimum(y2[:, None], y2) - np.maximum(y1[:, None], y1)
    shared = np.maximum(width, 0) * np.maximum(height, 0)
    area = (x2 - x1) * (y2 - y1)
    overlap = shared / (area[:, None] + area - shared)
    return tuple(boxes[overlap.mean(1).argmax()].tolist())


def test_a_box_guessed_without_the_picture_overlaps_next_to_nothing() -> None:
    """`ground` has no short list of answers; the best constant box of the training split is the blind baseline."""
    guess = ",".join(map(str, best_blind_box(draw("ground", "train", 400))))
    scores = [iou(example, f"\\boxed{{{guess}}}") for example in draw("ground", "test", 400)]
    assert np.mean([score.value for score in scores]) < 0.1
    assert np.mean([bool(score.correct) for score in scores]) < 0.05


def test_the_blind_guesser_notices_a_prior() -> None:
    """The check above can fail: with only the questions whose answer is 1 or 2 it is far above chance."""
    skewed = [example for example in draw("count", "train", 800) if example.answer in "12"]
    assert best_blind_accuracy(skewed[::2], skewed[1::2]) > 0.35
    corner = [example for example in draw("ground", "train", 500) if max(int(side) for side in example.answer.split(",")[2:]) < 24]
    guess = ",".join(map(str, best_blind_box(corner)))
    assert len(corner) > 15 and np.mean([iou(example, f"\\boxed{{{guess}}}").value for example in corner]) > 0.2


def test_every_answer_is_equally_frequent() -> None:
    for task, letters in (("count", "12345"), ("choice", "ABCD")):
        counts = Counter(example.answer for example in draw(task, "test", 600))
        expected = 600 / len(letters)
        statistic = sum((counts[letter] - expected) ** 2 / expected for letter in letters)
        assert set(counts) == set(letters) and statistic < 20, counts  # chi-square with 3 or 4 degrees: p < 0.001


def test_language_and_blank_pictures() -> None:
    assert all(example.meta["language"] == "zh" for example in draw("count", "dev", 10, language="zh"))
    blank, plain = draw("count", "dev", 3, blank_images=True), draw("count", "dev", 3)
    for a, b in zip(blank, plain, strict=True):
        assert (pixels(a) == 255).all() and pixels(a).shape == pixels(b).shape and a.question == b.question
    assert {example.meta["language"] for example in plain + draw("count", "dev", 20)} == {"zh", "en"}


def test_both_languages_ask_for_a_box() -> None:
    for task in TASKS:
        assert all("\\boxed{}" in example.question for example in draw(task, "train", 12))


def test_wrong_split_and_index_say_what_exists() -> None:
    with pytest.raises(DataError, match="count has no split 'tset'; did you mean 'test'"):
        shapes.count("tset", DATA)
    with pytest.raises(IndexError, match="10000 examples"):
        shapes.count("test", DATA)[10_000]


def test_slices_are_the_examples() -> None:
    rows = shapes.count("dev", DATA)
    assert list(rows[2:5]) == [rows[2], rows[3], rows[4]] and rows[-1] == rows[len(rows) - 1]
    assert all(a.id != b.id for a, b in pairwise(rows[:5]))
