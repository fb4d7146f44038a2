"""The real clients against a hub on this machine: what is fetched, what comes from the cache, and what each failure says."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from seegrad.data.hub import fetch
from seegrad.errors import DataError, MissingExtra, UsageError
from tests.data.hubs import BROKEN, COMMITS, GATED, Hub, serve

ROWS = "some-one/rows"
FILES = {
    ROWS: {
        COMMITS["main"]: {"data/train.jsonl": b'{"n": 2}\n', "README.md": b"about"},
        COMMITS["v1"]: {"data/train.jsonl": b'{"n": 1}\n'},
    },
    "some-one/empty": {COMMITS["main"]: {"README.md": b"about"}},
}
SCRIPT = """
import json, sys
from pathlib import Path
from seegrad.data.hub import fetch
from seegrad.errors import SeegradError
answers = []
for repo, revision, hub in json.loads(sys.argv[1]):
    try:
        folder = fetch(repo, ("**.jsonl",), revision=revision, hub=hub)
        answers.append({path.name: path.read_text() for path in folder.rglob("*") if path.is_file()})
    except SeegradError as error:
        answers.append([type(error).__name__, str(error)])
print(json.dumps(answers))
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve(FILES) as found:
        yield found


def fetched(home: Path, url: str, calls: Sequence[tuple[str, str]], hub: str = "huggingface", **variables: str) -> list[Any]:
    """What `fetch` gives in a fresh process for each (repo, revision): file contents by name, or [kind of error, message].

    A process of its own, because the clients read their settings from the environment when they are imported.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "MODELSCOPE_"))}
    environment |= {"HOME": str(home), "HF_HOME": str(home), "HF_ENDPOINT": url, "MODELSCOPE_ENDPOINT": url}
    environment |= {"MODELSCOPE_CACHE": str(home / "cache"), "MODELSCOPE_HOME": str(home / "home"), "MODELSCOPE_API_MAX_RETRIES": "1", **variables}
    words = [sys.executable, "-c", SCRIPT, json.dumps([[*call, hub] for call in calls])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_files_revisions_cache_and_offline(hub: Hub, tmp_path: Path) -> None:
    newest, old = {"train.jsonl": '{"n": 2}\n'}, {"train.jsonl": '{"n": 1}\n'}
    assert fetched(tmp_path, hub.url, [(ROWS, ""), (ROWS, "v1"), (ROWS, COMMITS["v1"])]) == [newest, old, old]
    assert len(hub.fetched) == 2, "the same file of the same commit is fetched once"
    assert not any("README" in path for path in hub.fetched), "files that fit no pattern are left on the hub"
    assert fetched(tmp_path, hub.url, [(ROWS, "")]) == [newest]
    assert len(hub.fetched) == 2, "a second process takes it from the cache"
    hub.paths.clear()
    offline, missing = fetched(tmp_path, hub.url, [(ROWS, "v1"), ("some-one/other", "")], HF_HUB_OFFLINE="1")
    assert offline == old
    assert (missing[0], hub.paths) == ("DataError", [])
    assert "HF_HUB_OFFLINE is on" in missing[1]
    assert "data.path=FOLDER" in missing[1]


def test_every_failure_is_one_line_that_says_what_to_do(hub: Hub, tmp_path: Path) -> None:
    calls = [("some-one/none", ""), (ROWS, "v9"), (GATED, ""), (BROKEN, ""), ("a/b/c", ""), ("some-one/empty", "")]
    answers = fetched(tmp_path, hub.url, calls)
    assert [kind for kind, _ in answers] == ["UsageError", "UsageError", "DataError", "DataError", "UsageError", "UsageError"]
    said = [
        "does not exist, or is private",
        "does not exist at that revision",
        "is gated: accept its terms",
        "HF_ENDPOINT=URL",
        "owner/name",
        "no file",
    ]
    for (_, line), expected in zip(answers, said, strict=True):
        assert expected in line
        assert "\n" not in line


def test_without_a_network_the_cache_is_enough(tmp_path: Path) -> None:
    with serve(FILES) as hub:
        url = hub.url
        assert fetched(tmp_path, url, [(ROWS, "")])[0]
    kept, (kind, line) = fetched(tmp_path, url, [(ROWS, ""), ("some-one/other", "")])
    assert kept == {"train.jsonl": '{"n": 2}\n'}
    assert kind == "DataError"
    assert f"cannot be fetched from {url}" in line
    assert "HF_ENDPOINT=URL" in line


def test_modelscope_by_its_client(tmp_path: Path) -> None:
    pytest.importorskip("modelscope")
    with serve(FILES) as hub:
        calls = [(ROWS, ""), (ROWS, "v1"), (ROWS, ""), ("some-one/none", ""), (ROWS, "v9"), (GATED, ""), ("a/b/c", "")]
        newest, old, again, *errors = fetched(tmp_path, hub.url, calls, "modelscope")
        assert (newest, old, again) == ({"train.jsonl": '{"n": 2}\n'}, {"train.jsonl": '{"n": 1}\n'}, newest)
        assert len(hub.fetched) == 2
    assert [kind for kind, _ in errors] == ["UsageError", "UsageError", "DataError", "UsageError"]
    assert "MODELSCOPE_API_TOKEN" in errors[0][1]
    assert "access is refused (403)" in errors[2][1]


@pytest.mark.soak  # the client itself tries again for ten seconds a call
def test_modelscope_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("modelscope")
    with serve(FILES) as hub:
        url = hub.url
        assert fetched(tmp_path, url, [(ROWS, "")], "modelscope")[0]
    kept, (kind, line) = fetched(tmp_path, url, [(ROWS, ""), ("some-one/other", "")], "modelscope")
    assert kept == {"train.jsonl": '{"n": 2}\n'}, "the cache is used"
    assert kind == "DataError"
    assert "MODELSCOPE_ENDPOINT=URL" in line
    next((tmp_path / "cache").rglob("snapshots/master/data/train.jsonl")).write_bytes(b"{")
    assert fetched(tmp_path, url, [(ROWS, "")], "modelscope")[0][0] == "DataError", "but not a download that broke off"


def test_modelscope_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope.hub.snapshot_download", None)
    with pytest.raises(MissingExtra, match=r"pip install 'seegrad\[data\]'"):
        fetch(ROWS, ("**.jsonl",), hub="modelscope")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "HF_HOME=FOLDER moves the cache"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "mirror"),
    ],
    ids=["full disk", "broken connection"],
)
def test_a_full_disk_is_not_a_broken_connection(monkeypatch: pytest.MonkeyPatch, raised: OSError, said: str) -> None:
    def fail(*args: object, **options: object) -> str:
        raise raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(DataError, match=said):
        fetch(ROWS, ("**.jsonl",))


def test_an_unknown_hub_is_refused() -> None:
    with pytest.raises(UsageError, match="huggingface, modelscope"):
        fetch(ROWS, ("**.jsonl",), hub="elsewhere")
