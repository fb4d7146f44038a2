"""From `data.path` and a split to rows: which files those are, and which rows of them.

    path ─ file | glob | folder | owner/name ─▶ files ─ split in the names ─▶ readers (formats.py) ─ [a:b] ─▶ RowSource
                                                      └ else a column `split` ┘

A split is a word in a file's name or in a folder above it (`train.parquet`, `train-00000-of-00002.parquet`, `data/train/rows.jsonl`), or the value
of a column `split`. One file that names no split is `train`. `train[:-100]`, `train[-100:]` and `train[:10%]` are parts of a split.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seegrad.data.formats import Csv, JsonArray, JsonLines, RowSource
from seegrad.data.parquet import GroupCache, Parquet
from seegrad.errors import DataError, UsageError, nearest

__all__ = ["Picked", "RowSource", "Several", "open_file", "open_rows", "part_positions", "split_part", "where_equal"]

ENDINGS = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")  # in a folder with several kinds, the first kind that has the split is read
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")  # beside pictures, as in Hugging Face's imagefolder
NO_ROWS = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json", "config.json", "package.json")
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
OTHER_KINDS = {
    b"version https://git-lfs": "a Git LFS pointer; fetch the file with: git lfs pull",
    b"\x1f\x8b": "compressed; unpack it with: gunzip",
    b"pk\x03\x04": "an archive or a spreadsheet; unpack it, or save the sheet as CSV",
    b"<!doctype": "a web page, probably an error page; download the file again",
    b"<html": "a web page, probably an error page; download the file again",
}
SAME = (("train", "training"), ("dev", "validation", "valid", "val"), ("test", "testing"))  # words for one split
SPLIT_COLUMNS = ("split", "original_split")
_PART = re.compile(r"(?P<name>.*)\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\]")
_HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)/?(?P<inside>(?:/[\w-][\w.-]*)*)")


def open_rows(path: str | Path, split: str = "", *, revision: str = "", hub: str = "huggingface") -> RowSource:
    """The rows of `split` at `path`: a file, a glob, a folder or a hub id; `{split}` in it stands for the split's name. An empty `split` is all rows.

    Raises UsageError when nothing is there or the split does not exist (naming what does), DataError when a file cannot be read or there are no rows.
    """
    name, part = split_part(split)
    text = str(path).replace("{split}", name)
    root, files = _find(text, revision, hub)
    source = _of_split(files, root, text, name, spelled="{split}" in str(path))
    if part is not None:
        source = Picked(source, part_positions(len(source), *part), f"{source.name}, part {split}")
    if not len(source):
        raise DataError(f"{source.name}: there are no rows; give a file or a split that has some", reason="no rows")
    if not source.columns:
        raise DataError(f"{source.name}: no row is an object with named columns; {_fault_of_first(source)}", reason="file cannot be read")
    return source


def _fault_of_first(source: RowSource) -> str:
    try:
        return f"the first: {source.row(0)}"
    except DataError as error:
        return f"the first: {error}"


def open_file(path: Path, cache: GroupCache | None = None) -> RowSource:
    """The reader of one file, chosen by its ending; JSON by its first character, a list or lines. Parquet files may share a cache.

    Raises DataError or UsageError in one line.
    """
    if not path.is_file():
        raise UsageError(f"{path} does not exist{_beside(path)}")
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{path} has the ending {ending!r}; rows are read from {', '.join(ENDINGS)}")
    try:
        _refuse_other_kinds(path)
        return Parquet(path, cache) if ending == ".parquet" else _text_reader(path, ending)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}", reason="file cannot be read") from None


class Several:
    """Rows of several sources, one after the other. Relative picture paths may also start at `root`."""

    def __init__(self, sources: Sequence[RowSource], name: str, root: Path) -> None:
        self.name, self._sources, self._root = name, tuple(sources), root
        self.columns = tuple(dict.fromkeys(column for source in sources for column in source.columns))
        self.files = tuple(path for source in sources for path in source.files)
        self._starts = [0]
        for source in sources:
            self._starts.append(self._starts[-1] + len(source))

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, index: int) -> dict[str, Any]:
        source, inner = self._at(index)
        return source.row(inner)

    def column(self, name: str) -> Iterator[Any]:
        for source in self._sources:
            yield from source.column(name)

    def place(self, index: int) -> str:
        source, inner = self._at(index)
        return source.place(inner)

    def folders(self, index: int) -> tuple[Path, ...]:
        source, inner = self._at(index)
        return tuple(dict.fromkeys((*source.folders(inner), self._root)))

    def _at(self, index: int) -> tuple[RowSource, int]:
        number = bisect_right(self._starts, index) - 1
        return self._sources[number], index - self._starts[number]


class Picked:
    """Some rows of a source, in the order of `positions`."""

    def __init__(self, source: RowSource, positions: Sequence[int], name: str) -> None:
        self.name, self.columns, self.files, self._source, self._positions = name, source.columns, source.files, source, positions

    def __len__(self) -> int:
        return len(self._positions)

    def row(self, index: int) -> dict[str, Any]:
        return self._source.row(self._positions[index])

    def column(self, name: str) -> Iterator[Any]:
        if isinstance(self._positions, range) and self._positions.step == 1:
            for position, value in enumerate(self._source.column(name)):
                if position in self._positions:
                    yield value
            return
        wanted = frozenset(self._positions)
        chosen = {position: value for position, value in enumerate(self._source.column(name)) if position in wanted}
        yield from (chosen[position] for position in self._positions)

    def place(self, index: int) -> str:
        return self._source.place(self._positions[index])

    def folders(self, index: int) -> tuple[Path, ...]:
        return self._source.folders(self._positions[index])


def where_equal(source: RowSource, column: str, fits: Callable[[str], bool], name: str) -> Picked:
    """The rows whose cell in `column`, as text, fits."""
    return Picked(source, array("q", (index for index, value in enumerate(source.column(column)) if value is not None and fits(str(value)))), name)


def _refuse_other_kinds(path: Path) -> None:
    """Files that only look like rows by their name."""
    with path.open("rb") as file:
        head = file.read(64)
    kind = next((what for start, what in OTHER_KINDS.items() if head.lower().startswith(start)), None)
    if kind is not None:
        raise DataError(f"{path} is {kind}", reason="file cannot be read")


def _text_reader(path: Path, ending: str) -> RowSource:
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16 text; convert it, for example: iconv -f UTF-16 -t UTF-8 {path.name}", reason="file cannot be read")
    if not head.strip():
        raise DataError(f"{path} is empty; expected rows", reason="file cannot be read")
    if ending in (".csv", ".tsv"):
        return Csv(path, "\t" if ending == ".tsv" else ",")
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if first == b"[":
        return JsonArray(path)
    source = JsonLines(path)
    if ending == ".json" and not source.columns:
        raise DataError(f"{path} is one JSON value, expected a list of rows: [{{…}}, {{…}}], or one row a line", reason="file cannot be read")
    if ending == ".json" and len(source) == 1 and all(_are_rows(value) for value in source.row(0).values()):
        raise DataError(
            f"{path} holds its rows inside {', '.join(source.columns)}; write such a list alone into a file, [{{…}}, {{…}}], named after its split",
            reason="file cannot be read",
        )
    return source


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _find(text: str, revision: str, hub: str) -> tuple[Path, list[Path]]:
    """The folder that file names are told from, and the files that may hold rows, sorted."""
    path = Path(text).expanduser()
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError as error:
        raise UsageError(f"data.path: {text[:200]!r} cannot be used: {error.strerror}; give a file, a glob, a folder or a hub id") from None
    if revision and (is_file or is_folder):
        raise UsageError(f"data.revision={revision!r} is not read for files on this machine ({text}); empty it: data.revision=''")
    if is_file:
        return path.parent, [path]
    if is_folder:
        return path, _in_folder(path)
    if any(sign in text for sign in "*?["):
        files = _matching(path)
        if not files:
            raise UsageError(f"data.path: no file matches {text!r}{_beside(path)}")
        return _parent_of(path), files
    on_hub = _HUB_ID.fullmatch(text)
    if on_hub is not None and path.suffix.lower() not in ENDINGS and not Path(path.parts[0]).exists():
        from seegrad.data.hub import fetch

        inside = on_hub["inside"].strip("/")
        patterns = tuple(f"{inside}/*{ending}" if inside else f"*{ending}" for ending in (*ENDINGS, *PICTURES))
        folder = fetch(on_hub["repo"], patterns, revision=revision, hub=hub) / inside
        return folder, _in_folder(folder)
    raise UsageError(f"data.path: {text!r} does not exist{_beside(path)}; give a file, a glob, a folder or a hub id such as owner/name")


def _in_folder(folder: Path) -> list[Path]:
    """Files below a folder that may hold rows; hidden ones, those that begin with `_` and descriptions of a data set are none."""
    files = []
    for path in sorted(_below(folder)):
        inner = path.relative_to(folder)
        hidden = any(part.startswith((".", "_")) for part in inner.parts)
        if path.suffix.lower() in ENDINGS and path.name not in NO_ROWS and not hidden and path.is_file():
            files.append(path)
    if files:
        return files
    names = sorted(path.name for path in folder.iterdir())
    if any(name.endswith(".arrow") for name in names):
        raise UsageError(f"{folder} was written by save_to_disk; write it as parquet: load_from_disk({str(folder)!r}).to_parquet('train.parquet')")
    raise UsageError(f"data.path: {folder} has no file of rows ({', '.join(ENDINGS)}); it holds {_listed(names)}")


def _below(folder: Path) -> Iterator[Path]:
    """All files below a folder, links to folders followed and each folder read once. Raises DataError for one that may not be read."""

    def refused(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}; its rows would be missing", reason="file cannot be read") from None

    seen: set[tuple[int, int]] = set()
    for root, folders, names in os.walk(folder, onerror=refused, followlinks=True):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        yield from (Path(root, name) for name in names)


def _of_split(files: list[Path], root: Path, text: str, split: str, *, spelled: bool) -> RowSource:
    """The rows of the split, by the names of the files, else by a column."""
    if not split or spelled:
        return _together(_one_kind(files), root, text)
    words = {path: _words(path.relative_to(root)) for path in files}
    for accepted in ({split.lower()}, _same(split)):
        found = [path for path in files if accepted & words[path]]
        found = [path for path in found if path.stem.lower() in accepted] or found  # test.parquet beside test-full.parquet
        if found:
            _refuse_several_sets(found, root, text, split)
            return _together(_one_kind(found), root, f"{text} ({split})")
    known = sorted({word for path in files for word in words[path] if _same(word) != {word}})
    if known:
        raise UsageError(f"{text} has no split {split!r}; splits: {', '.join(known)}")
    everything = _together(_one_kind(files), root, text)
    column = next((name for name in SPLIT_COLUMNS if name in everything.columns), None)
    if column is not None:
        chosen = where_equal(everything, column, lambda value: value.lower() == split.lower() or value.lower() in _same(split), f"{text} ({split})")
        if not len(chosen):
            values = sorted({str(value) for value in everything.column(column) if value is not None})
            raise UsageError(f"{text} has no row whose {column!r} is {split!r}; values: {_listed(values)}")
        return chosen
    if split.lower() == "train":
        return everything
    stems = f"; files: {_listed(sorted(path.name for path in files))}" if len(files) > 1 else ""
    raise UsageError(
        f"{text} has no split {split!r}: no file name or `split` column says one, so all rows are 'train'{stems}; "
        "put the split's name into a file name, or take a part of train, for example: eval.split='train[-100:]' data.train_split='train[:-100]'"
    )


def _refuse_several_sets(files: Sequence[Path], root: Path, text: str, split: str) -> None:
    """Files of one split in folders whose names differ otherwise (`main/train.parquet`, `extra/train.parquet`) are different data sets."""
    folders = {path: [part for part in path.relative_to(root).parent.parts if not _is_split(part)] for path in files}
    if len({tuple(part.rstrip("0123456789") for part in parts) for parts in folders.values()}) > 1:
        names = sorted({"/".join(parts) or "." for parts in folders.values()})
        raise UsageError(
            f"{text}: split {split!r} is in {len(names)} folders ({_listed(names)}); say which, for example: data.path={text}/{names[-1]}"
        )


def _is_split(name: str) -> bool:
    return any(word in group for group in SAME for word in _words(Path(name)))


def _together(files: Sequence[Path], root: Path, name: str) -> RowSource:
    cache = GroupCache()
    sources = [open_file(path, cache) for path in files]
    return sources[0] if len(sources) == 1 and files[0].parent == root else Several(sources, name, root)


def _one_kind(files: Sequence[Path]) -> list[Path]:
    """Files of the first kind that there is; a metadata file beside pictures comes before all."""
    beside = [path for path in files if path.name in METADATA]
    for ending in ENDINGS:
        chosen = [path for path in beside or files if path.suffix.lower() == ending]
        if chosen:
            return chosen
    return list(files)


def split_part(split: str) -> tuple[str, tuple[str, str] | None]:
    """`train[-100:]` as the split's name and the two bounds as written (empty: none)."""
    match = _PART.fullmatch(split)
    if match is None:
        if "[" in split:
            raise UsageError(f"split {split!r} cannot be read; a part is written like train[:-100], train[-100:] or train[10%:20%]")
        return split, None
    return match["name"], (match["start"] or "", match["stop"] or "")


def part_positions(length: int, start: str, stop: str) -> range:
    """Rows between two bounds; a percentage is of `length`, rounded down.

    >>> part_positions(50, "-10%", "")
    range(45, 50)
    """

    def bound(text: str) -> int | None:
        if not text.endswith("%"):
            return int(text) if text else None
        share = int(text[:-1])
        return share * length // 100 if share >= 0 else -(-share * length // 100)

    return range(length)[bound(start) : bound(stop)]


def _words(path: Path) -> set[str]:
    """Words of the folders and of the file's name before its endings, lower case.

    >>> sorted(_words(Path("data/train-00000-of-00002.parquet")))
    ['00000', '00002', 'data', 'of', 'train']
    """
    return {word for word in re.split(r"[^0-9a-z]+", str(path.with_suffix("")).lower()) if word}


def _same(split: str) -> set[str]:
    """All words for the split."""
    return next((set(group) for group in SAME if split.lower() in group), {split.lower()})


def _matching(pattern: Path) -> list[Path]:
    folder = _parent_of(pattern)
    return sorted(path for path in folder.glob(str(pattern.relative_to(folder))) if path.is_file())


def _parent_of(pattern: Path) -> Path:
    """The folder above the first part with a sign of a glob."""
    parts = pattern.parts
    first = next(number for number, part in enumerate(parts) if any(sign in part for sign in "*?["))
    return Path(*parts[:first])


def _beside(path: Path) -> str:
    """What is there instead: the nearest name in the folder, or what the folder holds."""
    folder = next((parent for parent in path.parents if parent.is_dir()), Path())
    missing = path.relative_to(folder).parts[0] if path.is_relative_to(folder) else path.name
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    hint = nearest(missing, names)
    return hint if "did you mean" in hint else f"; {folder.resolve()} holds {_listed(names)}"


def _listed(names: Sequence[str], most: int = 12) -> str:
    """Names in one line, not more than `most`."""
    return (", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")) or "nothing"
