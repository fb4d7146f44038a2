"""The lab's JSON form: the documented keys, the numbers of the evaluation."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from seegrad.errors import RunError
from seegrad.evaluate import EvalItem, EvalResult
from seegrad.lab_json import to_lab_json, write_lab_json
from tests.reporting import answer, evaluation, examples, sampled

ROOT = Path(__file__).resolve().parent.parent


def test_the_numbers_are_those_of_the_evaluation() -> None:
    rows = examples(count=20)
    result = evaluation(rows, answer(rows, lambda n: n % 2 == 0, lambda n: n % 4 != 3), model="runs/a@100")
    tree = to_lab_json(result)
    assert (tree["model"], tree["dataset"], tree["split"], tree["num_samples"]) == ("runs/a@100", "count", "test", 20)
    assert tree["accuracy"] == 0.5 and tree["format_rate"] == 0.75 and tree["accuracy_given_parsable"] == pytest.approx(10 / 15)
    assert tree["total_time"] == result.total_seconds and tree["samples_per_second"] == pytest.approx(20 / result.total_seconds)
    for entry, item, row in zip(tree["items"], result.items, rows, strict=True):
        assert (entry["id"], entry["question"], entry["label"]) == (row.id, row.question, row.answer)
        assert (entry["prediction"], entry["correct"], entry["response"], entry["completion_tokens"]) == (
            item.parsed,
            item.correct,
            item.text,
            item.num_tokens,
        )
    assert sum(entry["correct"] for entry in tree["items"]) / 20 == tree["accuracy"]
    assert sum(entry["prediction"] is not None for entry in tree["items"]) / 20 == tree["format_rate"]


def test_answers_without_a_grade_are_neither_right_nor_wrong() -> None:
    items = (EvalItem("1", "q", "A", parsed="A", correct=True), EvalItem("2", "q", "B", parsed="B", error="it raised", reason="grader failed"))
    tree = to_lab_json(EvalResult("x", items, 1.0))
    assert tree["accuracy"] == 1.0 and tree["model"] == "x"
    assert [(entry["correct"], entry["prediction"], entry.get("error")) for entry in tree["items"]] == [(True, "A", None), (None, None, "it raised")]
    nothing = EvalResult("x", (EvalItem("1", "q", "A"),), 0.0)
    assert to_lab_json(nothing)["accuracy_given_parsable"] is None and to_lab_json(nothing)["samples_per_second"] is None


def test_several_answers_are_told_apart_by_attempt_and_seed() -> None:
    tree = to_lab_json(sampled(examples(count=3), lambda n: 0.5, num_samples=2, seeds=(5, 6)))
    assert [(entry["attempt"], entry["seed"]) for entry in tree["items"][:4]] == [(0, 5), (1, 5), (2, 6), (3, 6)] and tree["num_samples"] == 12


def test_the_file_is_plain_json_and_a_bad_place_is_one_line(tmp_path: Path) -> None:
    result = evaluation(examples(count=3), lambda n: "圆形：\\boxed{1}")
    write_lab_json(result, tmp_path / "deep/lab.json")
    text = (tmp_path / "deep/lab.json").read_text(encoding="utf-8")
    assert json.loads(text) == to_lab_json(result) and "圆形" in text
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_lab_json(result, tmp_path / "file/lab.json")


def test_the_documented_form_is_the_real_one() -> None:
    text = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    shown = json.loads(re.findall(r"```json\n(.*?)```", text, re.S)[0])
    real = to_lab_json(replace(evaluation(examples(count=2), lambda n: "\\boxed{1}"), model="m"))
    assert list(shown) == list(real) and list(shown["items"][0]) == list(real["items"][0])
    for mine, theirs in ((shown, real), (shown["items"][0], real["items"][0])):
        assert {key: type(value) for key, value in mine.items()} == {key: type(value) for key, value in theirs.items()}
