"""Does it learn, and does it look? A short run of the real recipe on the bundled model, judged on questions that it never trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seegrad.compare import compare
from seegrad.evaluate import EvalResult, evaluate
from seegrad.images import blank
from seegrad.launch import read_launch, start
from seegrad.statistics import Interval, paired_difference, wilson
from seegrad.types import Example
from seegrad.wiring import Parts, find_target

pytestmark = pytest.mark.timeout(900)  # two real trainings of about a minute each on an idle core

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


def test_the_base_counts_imperfectly_and_often_forgets_the_box(base_answers: EvalResult) -> None:
    """Both have to be there to be learned; what it does answer readably is mostly right, because it sees."""
    accuracy, readable, given = (base_answers.summary[name] for name in ("accuracy", "format_rate", "accuracy_given_parsable"))
    assert accuracy["high"] > 0.5 and accuracy["low"] < 0.8, accuracy
    assert readable["high"] > 0.6 and readable["low"] < 0.95, readable
    assert given["low"] > 0.6 and given["high"] < 0.97, given


def test_a_short_run_answers_more_questions_right(base_answers: EvalResult, run_answers: EvalResult) -> None:
    comparison = compare(base_answers, run_answers)
    assert comparison.accuracy.difference.low > 0, comparison.accuracy


def same_question_other_pictures(examples: Sequence[Example]) -> list[Example]:
    """Each question with the picture, and so the gold answer, of the next example that asks about the same kind and has another answer."""
    swapped = []
    for index, example in enumerate(examples):
        rest = [*examples[index + 1 :], *examples[:index]]
        other = next(e for e in rest if e.meta["kind"] == example.meta["kind"] and e.answer != example.answer)
        swapped.append(replace(example, images=other.images, answer=other.answer))
    return swapped


def following(run: Path, asked: Sequence[Example], originals: Sequence[Example]) -> tuple[EvalResult, Interval]:
    """Answers to `asked`, and how much oftener they are right for the picture shown than for the one in `originals` (shares, paired)."""
    result = answers(str(run), asked, "swapped")
    for_old = [float(item.parsed == example.answer) for item, example in zip(result.items, originals, strict=True)]
    for_new = [float(item.correct) for item in result.items]
    return result, paired_difference(np.array(for_old), np.array(for_new))


def test_answers_follow_the_picture(run: Path, run_answers: EvalResult) -> None:
    """With another picture under the same question, the answers are right for the new picture and wrong for the old one."""
    examples = test_examples()
    result, gap = following(run, same_question_other_pictures(examples), examples)
    assert gap.low > 0.3, gap
    assert abs(np.mean([item.correct for item in result.items]) - np.mean([item.correct for item in run_answers.items])) < 0.12


def test_the_check_above_notices_a_model_that_cannot_look(run: Path) -> None:
    """The same swap under white pictures: whatever is answered cannot follow a picture that is not shown."""
    examples = test_examples()
    hidden = [replace(example, images=(blank(example.images[0]),)) for example in same_question_other_pictures(examples)]
    _, gap = following(run, hidden, examples)
    assert gap.low < 0.1, gap


def at_chance(result: EvalResult) -> bool:
    """Whether one favourite answer of the five explains the accuracy (one in five of these items, give or take what 240 items vary by)."""
    return wilson(sum(item.correct for item in result.items), len(result.items)).low < 0.22


def test_training_on_blank_pictures_stays_at_chance(tmp_path: Path, run_answers: EvalResult) -> None:
    """Without pictures there is nothing to learn but one favourite answer, however readable the answers get."""
    run = trained(tmp_path, "data.blank_images=true")
    blind = answers(str(run), test_examples(blank_images=True), "blind")
    assert at_chance(blind), blind.summary["accuracy"]
    assert blind.summary["format_rate"]["low"] > 0.3, "a model that says nothing readable is no evidence"
    assert not at_chance(run_answers), "the same training with pictures is seen to be better"
