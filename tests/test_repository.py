"""What the repository says about itself is true: trees, generated docs, recipes, wheel, import contracts, versions."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from seegrad.config import load_config, recipe_names

ROOT = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh-CN.md")
HIDDEN_IN_TREE = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".jinja", ".cfg", ".yaml", ".yml", ""}
# Written in pieces, so that this file may be searched too.
FORBIDDEN = tuple(
    "".join(pieces)
    for pieces in (
        ("py", "pi.org"),
        ("python", "hosted"),
        ("npm", "js."),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("shared", "/design"),
        ("shared", "/reference"),
        ("Anth", "ropic"),
        ("Cla", "ude"),
        ("language model ", "agent"),
    )
)


def tracked_files() -> Iterator[Path]:
    """Text files that belong to the repository."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix in TEXT:
            yield path


def readme_tree(text: str) -> tuple[set[str], set[str]]:
    """(names at the top, names in seegrad/) of the tree between the markers."""
    block = text.split("<!-- tree:start -->")[1].split("<!-- tree:end -->")[0]
    lines = [line for line in block.splitlines() if line.strip() and not line.startswith("```")]
    top = {line.split()[0].rstrip("/") for line in lines if not line.startswith(" ")}
    inner = {line.split()[0].rstrip("/") for line in lines if line.startswith("  ")}
    return top, inner


@pytest.mark.parametrize("name", READMES)
def test_readme_tree_is_the_real_one(name: str) -> None:
    top, inner = readme_tree((ROOT / name).read_text(encoding="utf-8"))
    assert inner == {entry.name for entry in (ROOT / "seegrad").iterdir() if entry.name not in HIDDEN_IN_TREE}
    assert top == {"seegrad", "tests", "bench", "scripts", "docs", "examples"}
    assert all((ROOT / folder).is_dir() for folder in top)


def test_a_wrong_tree_is_noticed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_tree(text.replace("  rollout.py ", "  rollouts.py ")) != readme_tree(text)


def test_readmes_are_short_and_say_the_same() -> None:
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in READMES)
    assert len(english.splitlines()) < 200
    assert len(chinese.splitlines()) < 200
    for pattern in (r"`(seegrad [a-z]+)", r"^seegrad .*?(?=\s+#|$)", r"^make [a-z]+", r"\]\(([a-z/-]+\.md)\)"):
        assert set(re.findall(pattern, english, re.M)) - {"README.zh-CN.md"} == set(re.findall(pattern, chinese, re.M)) - {"README.md"}
    assert english.count("\n## ") == chinese.count("\n## ")


@pytest.mark.parametrize("name", READMES)
def test_readme_names_what_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    documented = set(re.findall(r"^## `seegrad ([a-z]+)", (ROOT / "docs/cli.md").read_text(encoding="utf-8"), re.M))
    assert documented <= set(re.findall(r"`?(?:seegrad |、`)([a-z]+)", text))
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (ROOT / link).exists(), link
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"make ([a-z]+)", text)) - {"and"} <= targets
    assert all(f"<!-- learning:{end} -->" in text for end in ("start", "end"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_docs_are_what_help_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    module = script("make_cli_docs")
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == module.page(), "write it again with: make docs"
    from typer.main import get_command

    from seegrad.cli import app

    listed = {words[0] for words in module.COMMANDS if words}
    assert listed == set(get_command(app).commands), "a command is missing from the page"  # type: ignore[attr-defined]


def test_every_recipe_parses_and_bears_its_name() -> None:
    assert {"count", "choice", "ground"} <= set(recipe_names())
    for name in recipe_names():
        config = load_config(name)
        assert config.name == name
        on_laptop = name in ("count", "choice", "ground", "tutorial")
        assert (config.model.base == "tiny") == on_laptop, "these run without a download"


def test_modules_stay_small() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "seegrad").rglob("*.py")}
    assert not {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 420}
    assert not [path for path in sizes if path.stem in ("utils", "helpers", "common", "misc")]


def test_nothing_names_a_registry_host_or_a_machine() -> None:
    found = [f"{path.relative_to(ROOT)}: {word}" for path in tracked_files() for word in FORBIDDEN if word.lower() in _text(path).lower()]
    assert not found
    assert "py" + "pi.org" in FORBIDDEN, "the list is what it looks like"
    assert not [path.name for path in ROOT.iterdir() if path.name.endswith((".lock", "-lock.json"))]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]
    lines = [line for line in _text(ROOT / "constraints.txt").splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", line) for line in lines), "exact versions, no local suffix"
    pinned = {line.partition("==")[0] for line in lines}
    extras = project["optional-dependencies"]
    own = [name for item in extras["dev"] if item.startswith("seegrad[") for name in item[8:-1].split(",")]  # dev names other extras
    assert {"data", "math", "swanlab", "wandb", "tensorboard", "trackio"} <= set(own)
    items = [*project["dependencies"], *extras["dev"], *(item for name in own for item in extras[name])]
    wanted = {re.split(r"[<>=!~\[ ]", item)[0].lower() for item in items} - {"seegrad"}
    assert wanted <= pinned


def test_wheel_holds_recipes_and_model(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("seegrad-*.whl")
    assert wheel.stat().st_size < 12_000_000
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, pattern in (("seegrad/recipes", "*.toml"), ("seegrad/assets/tiny", "*"), ("seegrad", "**/*.py")):
        for path in (ROOT / folder).glob(pattern):
            assert path.relative_to(ROOT).as_posix() in names, path
    assert "seegrad/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "bench/", "runs/"))]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


def test_import_contracts() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout


def test_import_contracts_notice_a_wrong_import(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "seegrad", tmp_path / "seegrad", ignore=shutil.ignore_patterns("assets", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    module = tmp_path / "seegrad" / "advantages.py"
    module.write_text(_text(module) + "\n\ndef planted() -> None:\n    import torch  # noqa\n    from seegrad.losses import policy  # noqa\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "seegrad.advantages -> torch" in done.stdout
    assert "seegrad.advantages -> seegrad.losses.policy" in done.stdout
