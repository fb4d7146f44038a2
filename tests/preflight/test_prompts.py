"""Prompt lengths: counted without decoding, and compared with the limits and the context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from seegrad.config import Config, DataConfig, RolloutConfig, load_config
from seegrad.errors import DataError
from seegrad.families.folder import model_folder
from seegrad.preflight.prompts import Counted, Prompts, check_prompts, count_prompts, length_table
from seegrad.preflight.rows import scan
from seegrad.renderers.chat import ChatRenderer
from seegrad.wiring import Parts
from tests.fakes import config
from tests.preflight.subjects import findings, png, table


def prompts(*totals: int) -> Prompts:
    return Prompts(tuple(Counted(total, (total // 2,)) for total in totals), (), (), Counter())


def test_an_outlined_table_counts_as_rendering_does(tmp_path: Path) -> None:
    rows = []
    for number, (width, height) in enumerate([(64, 64), (300, 40), (40, 500), (1000, 900), (20, 20)]):
        (tmp_path / f"{number}.png").write_bytes(png(width, height))
        rows.append({"question": f"看图<image>，几个 circles? {number}", "answer": "1", "picture": f"{number}.png"})
    rows.append({"question": "No picture here.", "answer": "1"})
    source = table(tmp_path, rows)
    renderer = Parts(load_config("count")).renderer
    counted = count_prompts(renderer, [scan("train", source, 0)])
    assert [item.total for item in counted.counted] == [len(renderer.render(row)) for row in source]
    assert [sum(item.pictures) for item in counted.counted] == [sum(map(len, renderer.render(row).images)) for row in source]
    assert counted.inputs == ()
    lengths = counted.lengths(0, 600)
    assert lengths.prompt == max(item.total for item in counted.counted) and lengths.num_pictures == 500


def test_a_prompt_and_its_answer_must_fit_the_context() -> None:
    check = check_prompts(prompts(60, 90, 101), Config(rollout=RolloutConfig(max_tokens=100)), 200)
    assert check.passed is False and check.facts["over_context"] == 1
    assert "longest 101 + 100" in check.detail and "data.max_prompt_tokens=100" in check.change
    left_out = Config(rollout=RolloutConfig(max_tokens=100), data=DataConfig(max_prompt_tokens=100))
    assert check_prompts(prompts(60, 90, 101), left_out, 200).passed is None
    assert check_prompts(prompts(60, 90, 100), Config(rollout=RolloutConfig(max_tokens=100)), 200).passed is True
    assert "lower rollout.max_tokens" in check_prompts(prompts(60), Config(rollout=RolloutConfig(max_tokens=300)), 200).change


@pytest.mark.parametrize(("rule", "verdict"), [("skip", None), ("stop", False)])
def test_over_long_rows_are_counted(rule: str, verdict: bool | None) -> None:
    data = DataConfig.model_validate({"max_prompt_tokens": 80, "bad_rows": rule})
    check = check_prompts(prompts(60, 90, 101), Config(data=data), None)
    assert check.passed is verdict
    assert "2 prompts over data.max_prompt_tokens=80" in check.detail
    assert check_prompts(prompts(90, 101), Config(data=data), None).passed is False  # none is left


def test_prompts_that_cannot_be_rendered_are_told(tmp_path: Path) -> None:
    class Picky(ChatRenderer):
        def count(self, question: str, sizes: Sequence[tuple[int, int]]) -> int:
            if "bad" in question:
                raise DataError("the chat template refuses it", reason="template refuses")
            return super().count(question, sizes)

    source = table(tmp_path, [{"question": "ok?", "answer": "1"}, {"id": "b", "question": "bad?", "answer": "1"}])
    found = count_prompts(Picky(model_folder("tiny")), [scan("train", source, 0)])
    check = check_prompts(found, config(), 4096)
    assert check.passed is None and found.reasons == {"template refuses": 1} and len(found.counted) == 1
    assert "1 refused: template refuses (b: the chat template refuses it)" in check.detail


def test_the_limit_is_applied_to_what_is_sampled() -> None:
    found = findings(config=config(data={"max_prompt_tokens": 5}))
    assert found["prompts"].passed is False  # all of the fake prompts have 6 tokens
    assert found["model"].passed is None and "skipped" in found["model"].detail
    assert findings(config=config(data={"max_prompt_tokens": 6}))["model"].passed is True


def test_the_table_of_lengths() -> None:
    lines = length_table([Counted(10, (4,)), Counted(30, (4, 6)), Counted(20, ())]).splitlines()
    assert [line.split() for line in lines] == [
        ["tokens", "min", "median", "95", "%", "max"],
        ["text", "6", "20", "20", "20"],
        ["picture", "0", "4", "10", "10"],
        ["prompt", "10", "20", "30", "30"],
    ]
