"""Files of rows: every format gives the same cells, any row at any time, little memory and no descriptors; what is not there is said in one line."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies

from seegrad.data import files, hub
from seegrad.data.files import open_rows
from seegrad.data.formats import Csv, JsonArray, JsonLines, RowSource
from seegrad.data.parquet import GroupCache, Parquet
from seegrad.errors import DataError, UsageError

ROWS: list[dict[str, Any]] = [
    {"question": 'two\nlines, a "quote" and a comma', "answer": "3", "note": "é 三角形"},
    {"question": "[{brackets}]", "answer": "x,y", "note": None},
    {"question": "\\back\\slash\\", "answer": '"', "note": "\u2028 is no line end here"},
    {"question": "=1+1", "answer": "-0", "note": "'"},
]


def parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def json_array(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


def separated(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def tabbed(path: Path, rows: list[dict[str, Any]]) -> Path:
    return separated(path, rows, "\t")


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], Path]] = {
    "parquet": parquet,
    "jsonl": json_lines,
    "json": json_array,
    "csv": separated,
    "tsv": tabbed,
}


def cells(source: RowSource) -> list[dict[str, Any]]:
    return [source.row(index) for index in range(len(source))]


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_gives_the_same_cells_in_any_order(tmp_path: Path, ending: str) -> None:
    source = open_rows(WRITERS[ending](tmp_path / f"rows.{ending}", ROWS), "train")
    assert source.columns == ("question", "answer", "note")
    assert [source.row(index) for index in (2, 0, 3, 1)] == [ROWS[index] for index in (2, 0, 3, 1)]
    assert list(source.column("answer")) == [row["answer"] for row in ROWS]
    assert list(source.column("absent")) == [None] * len(ROWS)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "json"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, ending: str) -> None:
    path = WRITERS[ending](tmp_path / f"rows.{ending}", ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert cells(open_rows(path)) == ROWS


@settings(max_examples=30, deadline=None)
@given(strategies.lists(strategies.dictionaries(strategies.sampled_from("abc"), strategies.text() | strategies.integers(), min_size=1), min_size=1))
def test_lists_and_lines_of_any_json_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    for ascii_only in (True, False):
        texts = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
        (folder / "a.json").write_bytes((" [" + " ,\r\n".join(texts) + "\n] \n").encode("utf-8", "surrogatepass"))
        (folder / "b.jsonl").write_bytes("\r\n\n".join(texts).encode("utf-8", "surrogatepass"))
        for source in (JsonArray(folder / "a.json"), JsonLines(folder / "b.jsonl")):
            if ascii_only:
                assert cells(source) == rows
            assert len(source) == len(rows)


@settings(max_examples=30, deadline=None)
@given(
    strategies.lists(strategies.tuples(*[strategies.text(strategies.characters(exclude_characters="\0", exclude_categories=["Cs"]))] * 2), min_size=1)
)
def test_any_csv_reads_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("any") / "rows.csv"
    separated(path, [{"a": a, "b": b} for a, b in rows])
    assert cells(Csv(path)) == [{"a": a or None, "b": b or None} for a, b in rows]


def test_a_json_file_of_lines_is_read_as_lines(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "rows.json", ROWS)
    assert cells(open_rows(path)) == ROWS


def test_a_list_in_a_jsonl_file_is_read_as_a_list(tmp_path: Path) -> None:
    assert cells(open_rows(json_array(tmp_path / "rows.jsonl", ROWS))) == ROWS


def test_bad_lines_are_rows_that_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n[1]\n"text"\n\xff{}\n{"a": 7}\n' + b"[" * 100_000 + b"\n")
    source = open_rows(path)
    assert len(source) == 7 and source.row(0) == {"a": 1} and source.row(5) == {"a": 7}
    for index, line in ((1, 3), (2, 4), (3, 5), (4, 6), (6, 8)):
        with pytest.raises(DataError, match=f"line {line} of rows.jsonl") as error:
            source.row(index)
        assert error.value.reason == "line is not a JSON object"
    assert list(source.column("a")) == [1, None, None, None, None, 7, None]


def test_a_column_that_only_a_late_row_has_is_known(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "rows.jsonl", [{"a": 1}] * 500 + [{"a": 1, "image": "x"}])
    assert open_rows(path).columns == ("a", "image")


def test_a_csv_row_with_another_number_of_fields_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n1,2\n1\n1,2,3\n"x\ny",4\n')
    source = open_rows(path)
    assert source.row(0) == {"a": "1", "b": "2"} and source.row(3) == {"a": "x\ny", "b": "4"}
    for index in (1, 2):
        with pytest.raises(DataError, match=f"line {index + 2} of rows.csv has {1 if index == 1 else 3} fields, the header 2") as error:
            source.row(index)
        assert error.value.reason == "wrong number of fields"


def test_a_csv_cell_may_be_long(tmp_path: Path) -> None:
    path = separated(tmp_path / "rows.csv", [{"a": "x" * 300_000, "b": "y"}])
    assert len(open_rows(path).row(0)["a"]) == 300_000


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.parquet", b"", r"a\.parquet is not a whole parquet file \(0 bytes\)"),
        ("a.parquet", b"PAR1 something PAR1", "is not a whole parquet file"),
        ("a.json", b"", "is empty"),
        ("a.jsonl", b"\n \n", "is empty"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a,b\n", "there are no rows"),
        ("a.csv", b"a,a\n1,2\n", "names a column twice"),
        ("a.csv", "题目,b\n1,2\n".encode("gb18030"), "line 1: byte 0xcc is not UTF-8; convert it, for example: iconv -f GB18030"),
        ("a.csv", "a,b\n1,题\n".encode("gb18030"), "line 2: byte 0xcc is not UTF-8"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "is UTF-16 text; convert it"),
        ("a.csv", b'a,b\n1,2\n"x,3\n4,5\n', r'the row at line 3 opens a quote \("\) that is never closed'),
        ("a.csv", b"a;b\n1;2\n", "columns are separated by ';', expected a comma"),
        ("a.tsv", b"a|b\n1|2\n", "expected a tab"),
        ("a.csv", b"a\tb\n1\t2\n", "tabs belong into a .tsv file"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
        ("a.jsonl", b"\x1f\x8b\x08\x00", "is compressed; unpack it"),
        ("a.csv", b"PK\x03\x04\x14", "is an archive or a spreadsheet"),
        ("a.csv", b"<!DOCTYPE html><html>", "is a web page"),
        ("a.json", b'{"a": {"x": 1}}\n{', None),
        ("a.json", b'{\n "data": [1]\n}', "is one JSON value, expected a list of rows"),
        ("a.json", b"3", "is one JSON value, expected a list of rows"),
        ("a.json", b"[]", "there are no rows"),
        ("a.json", b"[1, 2]", "no row is an object with named columns"),
        ("a.jsonl", b"1\n2\n", "no row is an object with named columns"),
        ("a.json", b'[{"a": 1}, {"a": 2}', "ends inside its list, after 1 whole rows"),
        ("a.json", b'[{"a": "x}]', "ends inside its list"),
        ("a.json", b'[{"a": 1}] tail', "has text after its list: b' tail'"),
    ],
)
def test_a_file_that_is_no_table_is_said_in_one_line(tmp_path: Path, name: str, data: bytes, message: str | None) -> None:
    (tmp_path / name).write_bytes(data)
    if message is None:
        assert len(open_rows(tmp_path / name)) == 2
        return
    with pytest.raises(DataError, match=message) as error:
        open_rows(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_parquet_file_without_rows_or_with_a_cut_tail_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array([], pyarrow.int64())}), empty)
    with pytest.raises(DataError, match="there are no rows"):
        open_rows(empty)
    whole = parquet(tmp_path / "rows.parquet", ROWS)
    whole.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(DataError, match="is not a whole parquet file"):
        open_rows(whole)


def test_a_damaged_row_group_makes_its_rows_bad_and_no_others(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "rows.parquet", [{"a": os.urandom(500).hex()} for _ in range(6)], row_group_size=3, compression="snappy", use_dictionary=False
    )
    offset = pyarrow.parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 600] = b"\xff" * 600
    path.write_bytes(bytes(data))
    source = open_rows(path)
    assert len(source.row(2)["a"]) == 1000
    for _ in range(2):
        with pytest.raises(DataError, match=r"row group 1 of rows\.parquet cannot be read") as error:
            source.row(4)
        assert error.value.reason == "row cannot be read"
    assert len(source.row(0)["a"]) == 1000


def test_parquet_cells_of_any_type(tmp_path: Path) -> None:
    picture = {"bytes": b"\x89PNG", "path": None}
    path = tmp_path / "rows.parquet"
    table = pyarrow.table(
        {
            "images": pyarrow.array(
                [[picture, picture], [], None], pyarrow.list_(pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())]))
            ),
            "word": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
            "long": pyarrow.array(["x", None, "y"], pyarrow.large_string()),
            "blob": pyarrow.array([b"1", b"2", None], pyarrow.large_binary()),
            "nested": pyarrow.array([[[1], [2, 3]], [], None], pyarrow.list_(pyarrow.list_(pyarrow.int32()))),
        }
    )
    pyarrow.parquet.write_table(table, path, row_group_size=2)
    source = open_rows(path)
    assert source.row(0) == {"images": [picture, picture], "word": "a", "long": "x", "blob": b"1", "nested": [[1], [2, 3]]}
    assert source.row(2) == {"images": None, "word": "a", "long": "y", "blob": None, "nested": None}


def test_a_large_row_group_is_mapped_and_gives_the_same_rows(tmp_path: Path) -> None:
    rows = [{"id": index, "blob": random.Random(index).randbytes(2_000), "list": [{"a": index}]} for index in range(300)]
    path = parquet(tmp_path / "rows.parquet", rows)
    mapped, whole = Parquet(path, large_group=10_000), Parquet(path)
    order = random.Random(0).sample(range(300), 300)
    assert [mapped.row(index) for index in order] == [rows[index] for index in order] == [whole.row(index) for index in order]


def test_the_cache_of_row_groups_is_bounded_and_shared() -> None:
    cache = GroupCache(limit=2_500)
    for number in range(5):
        cache.put((Path("a"), number), pyarrow.table({"x": pyarrow.array([number] * 125)}))  # 1,000 bytes
    assert [cache.get((Path("a"), number)) is not None for number in range(5)] == [False, False, False, True, True]
    cache.put((Path("b"), 0), pyarrow.table({"x": pyarrow.array([1] * 10_000)}))
    assert cache.get((Path("a"), 4)) is None and cache.get((Path("b"), 0)) is not None


SPLITS = {
    "train.parquet test.parquet": ({"train": "train.parquet", "test": "test.parquet"}, "dev", "splits: test, train"),
    "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet data/validation-00000-of-00001.parquet": (
        {"train": "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet", "dev": "data/validation-00000-of-00001.parquet"},
        "test",
        "splits: train, validation",
    ),
    "data/train/a.jsonl data/train/b.jsonl data/Test/a.jsonl": (
        {"train": "data/train/a.jsonl data/train/b.jsonl", "test": "data/Test/a.jsonl"},
        "dev",
        "splits: test, train",
    ),
    "mine_train_v2.csv mine-dev.csv": ({"train": "mine_train_v2.csv", "validation": "mine-dev.csv"}, "test", "splits: dev, train"),
    "rows.jsonl": ({"train": "rows.jsonl"}, "dev", "no file name or `split` column says one, so all rows are 'train'"),
    "train.parquet train.csv dataset_infos.json .hidden/train.parquet": ({"train": "train.parquet"}, "dev", "splits: train"),
    "seen.jsonl unseen.jsonl": ({"seen": "seen.jsonl", "unseen": "unseen.jsonl"}, "dev", "files: seen.jsonl, unseen.jsonl"),
}


@pytest.mark.parametrize("names", SPLITS)
def test_splits_are_found_by_the_names_of_files(tmp_path: Path, names: str) -> None:
    for name in names.split():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        {"csv": separated, "json": json_array}.get(name.rpartition(".")[2], parquet if name.endswith("parquet") else json_lines)(
            path, [{"from": name}]
        )
    expected, absent, message = SPLITS[names]
    for split, sources in expected.items():
        assert [row["from"] for row in cells(open_rows(tmp_path, split))] == sources.split()
    with pytest.raises(UsageError, match=message):
        open_rows(tmp_path, absent)


def test_one_file_is_train_unless_its_name_says_otherwise(tmp_path: Path) -> None:
    assert len(open_rows(json_lines(tmp_path / "rows.jsonl", ROWS), "train")) == 4
    assert len(open_rows(json_lines(tmp_path / "test.jsonl", ROWS), "test")) == 4
    with pytest.raises(UsageError, match="no split 'train'; splits: test"):
        open_rows(tmp_path / "test.jsonl", "train")


def test_a_column_names_the_split_when_no_file_does(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "rows.jsonl", [{"n": n, "split": ("train", "validation", "Train", None)[n % 4]} for n in range(8)])
    assert [row["n"] for row in cells(open_rows(path, "train"))] == [0, 2, 4, 6]
    source = open_rows(path, "dev")
    assert [row["n"] for row in cells(source)] == [1, 5] == list(source.column("n"))
    assert source.place(1) == "rows.jsonl, line 6"
    with pytest.raises(UsageError, match="no row whose 'split' is 'test'; values: Train, train, validation"):
        open_rows(path, "test")


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:3]", [0, 1, 2]),
        ("train[-2:]", [8, 9]),
        ("train[2:4]", [2, 3]),
        ("train[:-8]", [0, 1]),
        ("train[:]", list(range(10))),
        ("train[:25%]", [0, 1]),
        ("train[-25%:]", [8, 9]),
        ("train[50%:70%]", [5, 6]),
    ],
)
def test_a_part_of_a_split(tmp_path: Path, split: str, expected: list[int]) -> None:
    path = parquet(tmp_path / "rows.parquet", [{"n": n} for n in range(10)], row_group_size=4)
    source = open_rows(path, split)
    assert [row["n"] for row in cells(source)] == expected == list(source.column("n"))


@pytest.mark.parametrize(("split", "error"), [("train[5:2]", DataError), ("train[x:]", UsageError), ("train[1]", UsageError), ("train[", UsageError)])
def test_a_part_that_is_none_is_said(tmp_path: Path, split: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"no rows|cannot be read; a part is written like"):
        open_rows(json_lines(tmp_path / "rows.jsonl", ROWS), split)


def test_globs_and_split_in_the_path(tmp_path: Path) -> None:
    for name in ("a/rows.jsonl", "b/rows.jsonl", "b/other.txt"):
        json_lines(tmp_path / name, [{"from": name}])
    assert [row["from"] for row in cells(open_rows(tmp_path / "*" / "*.jsonl", "train"))] == ["a/rows.jsonl", "b/rows.jsonl"]
    assert [row["from"] for row in cells(open_rows(tmp_path / "**" / "rows.jsonl"))] == ["a/rows.jsonl", "b/rows.jsonl"]
    assert [row["from"] for row in cells(open_rows(tmp_path / "{split}" / "rows.jsonl", "b"))] == ["b/rows.jsonl"]


def test_two_data_sets_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    for name in ("main/train.jsonl", "socratic/train.jsonl"):
        json_lines(tmp_path / name, ROWS)
    with pytest.raises(UsageError, match=r"split 'train' is in 2 folders \(main, socratic\); say which, for example: data\.path=.*/socratic"):
        open_rows(tmp_path, "train")
    for name in ("a/train/part1/x.jsonl", "a/train/part2/x.jsonl"):
        json_lines(tmp_path / name, ROWS)
    assert len(open_rows(tmp_path / "a", "train")) == 8


def test_a_folder_of_pictures_with_metadata(tmp_path: Path) -> None:
    json_lines(tmp_path / "train" / "metadata.jsonl", [{"file_name": "1.png", "text": "?"}])
    json_lines(tmp_path / "train" / "other.jsonl", [{"x": 1}])
    source = open_rows(tmp_path, "train")
    assert cells(source) == [{"file_name": "1.png", "text": "?"}]
    assert source.folders(0) == (tmp_path / "train", tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", r"'.*nowhere' does not exist; .* holds rows\.jsonl; give a file, a glob, a folder or a hub id"),
        ("row.jsonl", "did you mean 'rows.jsonl'?"),
        ("*.csv", r"no file matches '.*\*\.csv'; .* holds rows\.jsonl"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_is_there(tmp_path: Path, path: str, message: str) -> None:
    json_lines(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(UsageError, match=message):
        open_rows(tmp_path / path, "train")


def test_a_path_that_the_system_refuses_and_a_revision_of_local_files_are_said(tmp_path: Path) -> None:
    json_lines(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(UsageError, match="cannot be used: File name too long"):
        open_rows("a" * 5000, "train")
    for path in (tmp_path, tmp_path / "rows.jsonl"):
        with pytest.raises(UsageError, match=r"data\.revision='v1' is not read for files on this machine"):
            open_rows(path, "train", revision="v1")


def test_a_field_that_is_there_twice_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"answer": 1, "answer": 2}\n{"answer": 1}\n{"a": {"b": 1, "b": 2}}\n', encoding="utf-8")
    source = open_rows(path)
    for row, name in ((0, "answer"), (2, "b")):
        with pytest.raises(DataError, match=f"line {row + 1} of rows.jsonl: the field '{name}' is there twice"):
            source.row(row)
    assert source.row(1) == {"answer": 1}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"data": [{"question": "q"}]}', r"holds its rows inside data; write such a list alone into a file"),
        ("a.json", '{"train": [{"question": "q"}], "test": []}', r"holds its rows inside train, test; write"),
        ("a.jsonl", '{\n"question": "q"\n}\n', r"no row is an object with named columns; the first: line 1 of a\.jsonl: not JSON"),
        ("a.csv", "question,answer\rq,1\r", r"lines end as on old Macs; convert it: tr '\\r' '\\n' < a\.csv"),
    ],
)
def test_a_file_of_another_shape_says_what_to_do(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    with pytest.raises(DataError, match=message):
        open_rows(tmp_path / name)


def test_csv_columns_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(",question,answer,\n0,q,1,\n", encoding="utf-8")
    assert open_rows(tmp_path / "rows.csv").row(0) == {"unnamed_0": "0", "question": "q", "answer": "1", "unnamed_3": None}


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "rows" / "train").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    json_lines(tmp_path / "rows" / "train" / "a.jsonl", ROWS)
    json_lines(tmp_path / "elsewhere" / "b.jsonl", ROWS)
    (tmp_path / "rows" / "train" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "rows" / "train" / "round").symlink_to(tmp_path / "rows")
    assert sorted(path.name for path in open_rows(tmp_path / "rows").files) == ["a.jsonl", "b.jsonl"]


def test_a_folder_without_rows_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "picture.png").touch()
    with pytest.raises(UsageError, match=r"has no file of rows .* it holds picture\.png"):
        open_rows(tmp_path, "train")
    (tmp_path / "data-00000-of-00001.arrow").touch()
    with pytest.raises(UsageError, match="was written by save_to_disk; write it as parquet"):
        open_rows(tmp_path, "train")
    with pytest.raises(UsageError, match=r"has the ending '\.png'; rows are read from"):
        open_rows(tmp_path / "picture.png", "train")


def test_a_hub_id_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def fetch(repo: str, patterns: tuple[str, ...], *, revision: str, hub: str) -> Path:
        asked.append((repo, patterns, revision, hub))
        return tmp_path

    monkeypatch.setattr(hub, "fetch", fetch)
    monkeypatch.chdir(tmp_path)
    json_lines(tmp_path / "main" / "train.jsonl", ROWS)
    assert len(open_rows("owner/name", "train", revision="abc", hub="modelscope")) == 4
    assert len(open_rows("owner/name/main", "train")) == 4
    assert [(repo, revision, place) for repo, _, revision, place in asked] == [("owner/name", "abc", "modelscope"), ("owner/name", "", "huggingface")]
    assert "*.parquet" in asked[0][1] and "main/*.parquet" in asked[1][1]
    for local in ("main/absent", "owner/absent.jsonl", "./owner/name"):
        with pytest.raises(UsageError, match="does not exist"):
            open_rows(local, "train")
    assert len(asked) == 2


@pytest.mark.parametrize("ending", WRITERS)
def test_readers_keep_no_descriptor(tmp_path: Path, ending: str) -> None:
    path = WRITERS[ending](tmp_path / f"rows.{ending}", ROWS)
    open_rows(path).row(0)  # what the libraries open for good
    before = _descriptors()
    sources = [open_rows(path) for _ in range(40)]
    for source in sources:
        source.row(1)
        list(source.column("answer"))
    assert _descriptors() <= before


FORKED = """
import json, os, sys
from pathlib import Path
from seegrad.data.files import open_rows
from seegrad.data.parquet import Parquet
sources = [open_rows(path) for path in sys.argv[1:]] + [Parquet(Path(sys.argv[1]), large_group=1)]
before = [source.row(1) for source in sources]
child = os.fork()
if child == 0:
    os._exit(0 if all([source.row(n) for n in (0, 1)] == [source.row(0), row] and row for source, row in zip(sources, before)) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_readers_work_in_a_forked_process(tmp_path: Path) -> None:
    paths = [str(WRITERS[ending](tmp_path / f"rows.{ending}", ROWS)) for ending in WRITERS]
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, *paths], check=True, timeout=120)


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_text_rows_are_not_held_in_memory(tmp_path: Path, ending: str) -> None:
    _bounded(tmp_path, ending, 5_000)


@pytest.mark.soak
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_100_000_text_rows_are_not_held_in_memory(tmp_path: Path, ending: str) -> None:
    _bounded(tmp_path, ending, 100_000)


def _bounded(tmp_path: Path, ending: str, count: int) -> None:
    """Opening and reading rows of 1,000 characters takes 24 bytes a row and a fixed amount; a reader that keeps them takes 1,000."""
    path = WRITERS[ending](tmp_path / f"rows.{ending}", [{"id": str(n), "text": f"{n}" + "x" * 1_000} for n in range(count)])
    tracemalloc.start()
    try:
        source = open_rows(path)
        for index in random.Random(0).sample(range(count), 200):
            assert source.row(index)["id"] == str(index)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60 * count + 1_000_000 < count * 1_000


WRITE = """
import sys
import pyarrow, pyarrow.parquet
path, count, blob = sys.argv[1], int(sys.argv[2]), bytes(range(250)) * 40
table = pyarrow.table({"id": range(count), "image": [n.to_bytes(4, "big") + blob for n in range(count)]})
pyarrow.parquet.write_table(table, path, row_group_size=count, use_dictionary=False, compression="none")
"""
READ = """
import random, sys
from pathlib import Path
from seegrad.data.parquet import LARGE_GROUP, Parquet

def private_bytes():  # memory of this process that no file stands behind
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")) * 1024

path, count, large = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) or LARGE_GROUP
before = private_bytes()
source = Parquet(path, large_group=large)
for index in random.Random(0).sample(range(count), 300):
    row = source.row(index)
    assert row["id"] == index and row["image"][:4] == index.to_bytes(4, "big")
assert sum(source.column("id")) == count * (count - 1) // 2
print(private_bytes() - before)
"""


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_parquet_rows_are_not_held_in_memory(tmp_path: Path, count: int) -> None:
    """One row group of any size, as pandas writes it. A reader that decodes it holds all of it."""
    path = str(tmp_path / "rows.parquet")
    subprocess.run([sys.executable, "-c", WRITE, path, str(count)], check=True, timeout=200)
    grown = [
        int(subprocess.run([sys.executable, "-c", READ, path, str(count), large], check=True, timeout=200, capture_output=True).stdout)
        for large in ("0", str(1 << 40))
    ]
    assert grown[0] < 150_000_000 < count * 10_000 * 0.9 < grown[1]


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_positions_of_a_part() -> None:
    assert files.part_positions(7, "-50%", "") == range(4, 7) and files.part_positions(7, "", "50%") == range(3)
