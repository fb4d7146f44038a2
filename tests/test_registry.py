"""Short names and addresses: what is registered loads, what is not is explained in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from seegrad import registry
from seegrad.errors import UsageError

TORCH_FREE = [(kind, name) for kind in registry.TABLE for name in registry.names(kind) if kind not in ("loss", "backend")]


@pytest.mark.parametrize(("kind", "name"), TORCH_FREE, ids=lambda value: str(value))
def test_every_torch_free_row_loads(kind: registry.Kind, name: str) -> None:
    assert registry.load(kind, name) is not None


@pytest.mark.parametrize("kind", ["loss", "backend"])
def test_every_loss_and_backend_loads(kind: registry.Kind) -> None:
    assert all(callable(registry.load(kind, name)) for name in registry.names(kind))


def test_names_are_sorted() -> None:
    assert registry.names("reward") == sorted(registry.TABLE["reward"])


def test_a_module_address_loads() -> None:
    assert registry.load("advantage", "seegrad.advantages:mean") is registry.load("advantage", "mean")


def test_a_file_address_loads_from_any_folder_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("calls = []\ncalls.append(1)\ndef half(example, text):\n    return 0.5\n")
    monkeypatch.chdir(tmp_path)
    relative, absolute = registry.load("reward", "mine.py:half"), registry.load("reward", f"{tmp_path}/mine.py:half")
    assert relative is absolute and relative(None, "") == 0.5


def test_a_file_may_import_its_neighbours_but_hides_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "next_door.py").write_text("VALUE = 0.25\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('this is not the json that everybody means')\n")
    (tmp_path / "mine.py").write_text("import json\nfrom next_door import VALUE\n\ndef f(example, text):\n    return VALUE\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert registry.load("reward", f"{tmp_path}/mine.py:f")(None, "") == 0.25


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"def which(example, text):\n    return {folder!r}\n")
    assert [registry.load("reward", f"{tmp_path}/{folder}/mine.py:which")(None, "") for folder in ("a", "b")] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coutn", "no reward 'coutn'; did you mean 'count'\\?; or give your own as file.py:function"),
        ("zzz", "known: choice, .*count, "),
        ("nowhere.py:f", r"file 'nowhere\.py' does not exist \(looked in "),
        ("no.such.module:f", "module 'no.such.module' cannot be imported"),
        ("seegrad.advantages:meann", "has no 'meann'; did you mean 'mean'"),
        ("seegrad.advantages:", "has no ''"),
        (":f", "cannot be imported"),
        ("..relative:f", "cannot be imported"),
        ("", "no reward ''"),
    ],
)
def test_a_wrong_name_is_explained_in_one_line(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        registry.load("reward", name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "line", "kind"),
    [
        ("x = 1\ny = x / 0\n", 2, "ZeroDivisionError"),
        ("x = 1\ndef f(:\n", 2, "SyntaxError"),
        ("import no_such_package\n", 1, "ModuleNotFoundError"),
        ("import sys\nsys.exit()\n", 2, "SystemExit"),
    ],
)
def test_a_file_that_does_not_load_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, line: int, kind: str) -> None:
    (tmp_path / "mine.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    for path in ("mine.py", f"{tmp_path}{os.sep}mine.py"):
        with pytest.raises(UsageError, match=rf"mine\.py:{line} failed to load: {kind}") as caught:
            registry.load("reward", f"{path}:f")
        assert "\n" not in str(caught.value)


def test_a_repaired_file_loads_after_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("1 / 0\n")
    with pytest.raises(UsageError):
        registry.load("reward", f"{path}:f")
    path.write_text("def f(example, text):\n    return 1.0  # repaired\n")
    assert registry.load("reward", f"{path}:f")(None, "") == 1.0


def test_a_module_that_breaks_while_importing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaking_module_for_the_registry.py").write_text("raise RuntimeError('two\\nlines')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="RuntimeError: two") as caught:
        registry.load("reward", "breaking_module_for_the_registry:f")
    assert "\n" not in str(caught.value)


def test_a_package_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a command, whose sys.path does not have that folder."""
    (tmp_path / "of_mine").mkdir()
    (tmp_path / "of_mine/helper.py").write_text("WORTH = 2.0\n")
    (tmp_path / "of_mine/rewards.py").write_text("from .helper import WORTH\n\n\ndef f(example, text):\n    return WORTH\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert registry.load("reward", "of_mine.rewards:f")(None, "") == 2.0
    for module in [name for name in sys.modules if name.partition(".")[0] == "of_mine"]:
        del sys.modules[module]
