"""`seegrad data prepare`, `show` and `list` as a person types them, the download with the real client from a hub on this machine."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from seegrad import registry
from seegrad.config import DataConfig
from seegrad.data.catalog import CATALOG
from seegrad.data.files import open_rows
from seegrad.data.prepare import ROWS, prepare, write_parquet
from seegrad.data.show import listing
from seegrad.errors import DataError, UsageError
from tests.data import schemas
from tests.data.hubs import COMMITS, serve
from tests.disk import small_file_system
from tests.test_cli import seegrad

ROOT = Path(__file__).parents[2]


def downloading(*words: str, cwd: Path, endpoint: str) -> str:
    """What `seegrad` prints, in a process of its own, because the hub's client reads its settings when it is imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HF_HOME": str(cwd / "home"),
        "HF_ENDPOINT": endpoint,
    }
    done = subprocess.run([sys.executable, "-m", "seegrad", *words], env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_downloaded_once_then_read_without_a_network(tmp_path: Path) -> None:
    schemas.write_geoqa(tmp_path / "hub.parquet", {"train": 5, "dev": 2, "test": 120})
    data = (tmp_path / "hub.parquet").read_bytes()
    with serve({"hz2475/geoQA": {COMMITS["v1"]: {"data/train-00000-of-00001.parquet": data}}}) as hub:
        printed = downloading("data", "prepare", "geoqa", "--revision", "v1", cwd=tmp_path, endpoint=hub.url)
        assert len(hub.fetched) == 1
    lines = [line.split() for line in printed.splitlines()]
    assert lines[0] == ["split", "rows", "good", "file"]
    assert [line[:3] for line in lines[1:5]] == [["train", "5", "5"], ["dev", "2", "2"], ["test", "100", "100"], ["test-full", "120", "120"]]
    assert printed.endswith("read them with: data.name=geoqa data.path=data/geoqa\n")
    shown = seegrad("data", "show", "geoqa", "data.path=data/geoqa", "--split", "test", "-n", "3", cwd=tmp_path)
    assert shown.startswith("geoqa/test: 100 rows\n#0 ")
    assert shown.count("40×30") == 3
    assert (tmp_path / "runs" / "geoqa-test.png").read_bytes().startswith(b"\x89PNG")


def test_the_default_place_of_a_set_with_two_configurations(tmp_path: Path) -> None:
    schemas.write_gsm8k(tmp_path / "gsm8k", 4)
    files = {str(path.relative_to(tmp_path / "gsm8k")): path.read_bytes() for path in sorted((tmp_path / "gsm8k").rglob("*.parquet"))}
    with serve({"openai/gsm8k": {COMMITS["main"]: files}}) as hub:
        printed = downloading("data", "prepare", "gsm8k", cwd=tmp_path, endpoint=hub.url)
        assert not any("socratic" in path for path in hub.fetched)
    assert [line.split()[:3] for line in printed.splitlines()[1:3]] == [["train", "4", "4"], ["test", "4", "4"]]


def test_text_has_no_contact_sheet_and_bad_rows_are_told(tmp_path: Path) -> None:
    schemas.write_gsm8k(tmp_path / "gsm8k", 2)
    shown = seegrad("data", "show", "gsm8k", "data.path=gsm8k", cwd=tmp_path)
    assert "text only" in shown
    assert shown.endswith("pictures: none in these rows\n")
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())
    lines = ['{"question": "1+1?", "answer": "#### 2"}', "{broken", '{"question": "2+2?", "answer": "four"}']
    (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    shown = seegrad("data", "show", "gsm8k", "data.path=train.jsonl", cwd=tmp_path)
    assert "#1   bad row (line is not a JSON object): gsm8k (train), row 1 (train.jsonl, line 2)" in shown
    assert "#2   bad row (no final number)" in shown
    printed = seegrad("data", "prepare", "gsm8k", "data.path=train.jsonl", "--split", "train", "--out", "here", cwd=tmp_path)
    assert printed.splitlines()[1].split()[:3] == ["train", "3", "1"]
    assert "1 bad: line is not a JSON object" in printed
    assert "1 bad: no final number" in printed
    assert pq.read_table(tmp_path / "here" / "train.parquet").num_rows == 2, "a line that is no row is left out"


def test_every_named_set_is_listed_prepared_and_registered() -> None:
    printed = "\n".join(listing())
    assert CATALOG.keys() == ROWS.keys()
    for name, entry in CATALOG.items():
        assert name in registry.names("dataset")
        assert entry.grader in registry.names("reward")
        assert entry.hub_ids[0] in printed
        assert all(split in printed for split in entry.splits)


def test_a_set_without_a_hub_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'count' is not one that is downloaded.*data show"):
        list(prepare(DataConfig(name="count"), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_rows_that_fit_no_table_leave_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": "a", "answer": "#### 1"}\n{"question": {"b": 1}, "answer": "#### 1"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="do not fit one table") as caught:
        write_parquet(open_rows(tmp_path / "train.jsonl", "train"), tmp_path / "out.parquet")
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.jsonl"]


def test_a_picture_that_cannot_be_read_stays_the_same_fault(tmp_path: Path) -> None:
    schemas.write_r1v_list(tmp_path / "test.jsonl", [1, 2])
    (tmp_path / "pictures" / "0.png").unlink()
    (tmp_path / "pictures" / "1.png").write_bytes(schemas.drawing()[:60])
    data = DataConfig(name="clevr-count", path=str(tmp_path))
    (part,) = prepare(data, tmp_path / "out", ["test"])
    assert (part.num_rows, part.num_good) == (2, 0)
    assert len(part.bad) == 2, "a missing file and a broken one are two kinds of fault"


def geoqa_at(place: Path, *, path: Path, out: Path) -> list[int]:
    """The numbers of rows that are written when GeoQA is prepared from `path`."""
    schemas.write_geoqa(place, {"train": 3, "dev": 2, "test": 4})
    return [part.num_rows for part in prepare(DataConfig(name="geoqa", path=str(path)), out)]


def test_the_files_that_rows_come_from_are_not_written_over(tmp_path: Path) -> None:
    whole = tmp_path / "train.parquet"
    for path, out in ((tmp_path, tmp_path), (whole, tmp_path), (tmp_path, tmp_path.parent)):
        with pytest.raises(UsageError, match=r"read from .*train\.parquet, in the folder that is to be written; give another one with --out"):
            geoqa_at(whole, path=path, out=out)
        assert len(open_rows(whole)) == 9


def test_a_folder_inside_the_one_that_is_read_is_not_read_twice(tmp_path: Path) -> None:
    assert geoqa_at(tmp_path / "all.parquet", path=tmp_path, out=tmp_path / "out") == [3, 2, 4, 4]


def test_what_a_killed_process_left_is_used_again_and_a_second_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    left = tmp_path / "out" / "train.parquet.part"
    left.write_bytes(b"half a file" * 1000)
    with left.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match=r"train\.parquet is being written by another process"):
            geoqa_at(tmp_path / "whole.parquet", path=tmp_path / "whole.parquet", out=tmp_path / "out")
    assert geoqa_at(tmp_path / "whole.parquet", path=tmp_path / "whole.parquet", out=tmp_path / "out") == [3, 2, 4, 4]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dev.parquet", "test-full.parquet", "test.parquet", "train.parquet"]


def test_a_full_disk_names_the_file_and_leaves_no_part(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "out", "4k") as out:
        with pytest.raises(DataError, match=r"train\.parquet cannot be written: No space left on device; free some space"):
            geoqa_at(tmp_path / "whole.parquet", path=tmp_path / "whole.parquet", out=out)
        assert list(out.iterdir()) == []
