"""`seegrad doctor` on real recipes: what it prints, its exit code, its JSON, and a model folder without weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from seegrad import registry
from seegrad.config import recipe_names
from seegrad.doctor import doctor
from seegrad.errors import UsageError
from seegrad.families.folder import model_folder
from tests.data import schemas

SMALL = {"model": True, "as_json": False, "num_items": 3, "num_samples": 2}


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The setting of a backend without torch, in an empty working directory."""
    monkeypatch.setitem(registry.TABLE["backend"], "echo", "tests.echo_backend:open_backend")
    monkeypatch.chdir(tmp_path)
    return "model.backend=echo:"


def rows_of(recipe: str) -> list[str]:
    """Settings that give a recipe rows of its data set's schema, made here."""
    if recipe == "geoqa":
        schemas.write_geoqa(Path("geoqa.parquet"), {"train": 8, "dev": 2, "test": 6})
        return ["data.path=geoqa.parquet"]
    if recipe == "geo3k":
        for split in ("train", "validation", "test"):
            schemas.write_geometry3k(Path(f"{split}.parquet"), 6)
        return ["data.path=."]
    if recipe == "gsm8k":
        schemas.write_gsm8k(Path("gsm8k"), 6)
        return ["data.path=gsm8k", "data.train_split=train[:-2]", "eval.split=test"]
    return []


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_can_be_examined_with_the_bundled_model(recipe: str, echo: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [echo, "model.base=tiny", "rollout.max_tokens=40", "eval.max_tokens=40", *rows_of(recipe)]
    code = doctor(recipe, settings, **SMALL)
    printed = capsys.readouterr().out
    failed = [line for line in printed.splitlines() if line.startswith("FAIL")]
    allowed = ("FAIL  splits",) if recipe in ("geo3k", "gsm8k") else ()  # their made-up splits hold the same rows
    assert all(line.startswith(allowed) for line in failed) if failed else code == 0, printed
    assert "gold answers: " in printed and "flat groups: " in printed and "GiB on cpu" in printed


def test_json_is_one_document_with_the_same_findings(echo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("count", [echo], **{**SMALL, "as_json": True}) == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["recipe"], tree["passed"], tree["failed"]) == ("count", True, 0)
    assert [check["name"] for check in tree["checks"]][:3] == ["rows", "ids", "splits"]
    assert tree["notes"] == sum(check["result"] == "note" for check in tree["checks"])
    assert all(check["change"] for check in tree["checks"] if check["result"] != "ok")


def test_a_failed_check_is_exit_code_1(echo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("count", [echo, "rollout.max_tokens=4090"], **SMALL) == 1
    printed = capsys.readouterr().out
    assert "FAIL  prompts: 6 prompts and their answers do not fit the context" in printed and "1 of 8 checks failed" in printed
    assert doctor("count", [echo, "reward.parts={ choice = 1.0 }"], **{**SMALL, "model": False}) == 1


def test_a_folder_of_small_files_gives_everything_but_answers(echo: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("model")
    shutil.copytree(model_folder("tiny"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    assert doctor("count", ["model.base=./model"], **SMALL) == 0
    printed = capsys.readouterr().out
    assert "note  model: skipped: model has no weights (*.safetensors)" in printed
    assert "ok    memory: about" in printed and "ok    prompts: 6 counted" in printed
    assert doctor("count", [], **{**SMALL, "model": False}) == 0
    assert "skipped: --no-model" in capsys.readouterr().out


def test_a_recipe_that_does_not_exist_is_a_usage_error(echo: str) -> None:
    with pytest.raises(UsageError, match="did you mean 'count'"):
        doctor("cuont", [], **SMALL)
