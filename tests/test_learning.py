"""Does it learn, and does it look? A short run of the real recipe on the bundled model, judged on questions that it never trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seegrad.compare import compare
from seegrad.evaluate import EvalResult, evaluate
from seegrad.launch import read_launch, start
from seegrad.statistics import paired_difference, wilson
from seegrad.types import Example
from seegrad.wiring import Parts, find_target

NUM_ITEMS = 240
SHORT = ("steps=16", "eval.every=0", "save.every=0")


def trained(folder: Path, *settings: str) -> Path:
    run = folder / "run"
    assert start(read_launch(["count", *SHORT, *settings], out=run)) == 0
    return run


def answers(target_name: str, examples: Sequence[Example], name: str) -> EvalResult:
    """Greedy answers of a base model or run, graded against each example's own gold."""
    target = find_target(target_name)
    parts = Parts(target.config)
    params = parts.sampling(temperature=0.0)
    return evaluate(target.sampler(parts), parts.renderer, parts.rewards, examples, params, name=name, version=target.step)


def test_examples(**data: object) -> list[Example]:
    config = find_target("tiny").config
    config = config.model_copy(update={"data": config.data.model_copy(update=data)})
    return list(Parts(config).examples("test")[:NUM_ITEMS])


test_examples.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("learning"))


@pytest.fixture(scope="module")
def base_answers() -> EvalResult:
    return answers("tiny", test_examples(), "base")


@pytest.fixture(scope="module")
def run_answers(run: Path) -> EvalResult:
    return answers(str(run), test_examples(), "trained")


def test_a_short_run_answers_more_questions_right(base_answers: EvalResult, run_answers: EvalResult) -> None:
    comparison = compare(base_answers, run_answers)
    assert comparison.accuracy.low > 0, comparison


def same_question_other_pictures(examples: Sequence[Example]) -> list[Example]:
    """Each question with the picture, and so the gold answer, of the next example that asks about the same kind and has another answer."""
    swapped = []
    for index, example in enumerate(examples):
        rest = [*examples[index + 1 :], *examples[:index]]
        kind = example.meta["kind"]
        other = next(e for e in rest if str(e.meta["counts"][kind]) != example.answer)
        swapped.append(replace(example, images=other.images, answer=str(other.meta["counts"][kind])))
    return swapped


def test_answers_follow_the_picture(run: Path, run_answers: EvalResult) -> None:
    """With another picture under the same question, the answers are right for the new picture and wrong for the old one."""
    examples = test_examples()
    swapped = same_question_other_pictures(examples)
    new = answers(str(run), swapped, "swapped")
    old_gold = [item.parsed == example.answer for item, example in zip(new.items, examples, strict=True)]
    right = [item.correct for item in new.items]
    assert paired_difference(np.array(old_gold, float), np.array(right, float)).low > 0.3
    assert abs(np.mean(right) - np.mean([item.correct for item in run_answers.items])) < 0.12


def test_the_check_above_notices_a_model_that_does_not_look(run: Path) -> None:
    """The same question under a white picture: whatever is answered cannot follow a picture that is not shown."""
    examples = test_examples(blank_images=True)
    blind = answers(str(run), examples, "blank")
    assert wilson(sum(item.correct for item in blind.items), len(blind.items)).low < 0.2 + 0.06


def test_training_on_blank_pictures_stays_at_chance(tmp_path: Path) -> None:
    """Without pictures there is nothing to learn but one favourite answer: 1 in 5."""
    run = trained(tmp_path, "data.blank_images=true")
    blind = answers(str(run), test_examples(blank_images=True), "blind")
    rate = wilson(sum(item.correct for item in blind.items), len(blind.items))
    assert rate.low < 0.2 < rate.high + 0.02, rate
