"""Evaluation files and run directories → one Markdown page with figures. Nothing is sampled: what the page says is in the files.

A, B ─▶ evaluations on the same items, paired ─┐
        metrics.jsonl of their runs ───────────┼─▶ out/report.md + out/*.png
        images/<sha256>.png ───────────────────┘
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seegrad import figures, page
from seegrad.compare import Comparison, Pair, compare, length_bins, same_items
from seegrad.errors import UsageError
from seegrad.evaluate import EvalItem, EvalResult, write_file
from seegrad.page import Names
from seegrad.rundir import RunDir

NUM_IMPROVED, NUM_WORSENED = 6, 3  # examples in the strip
MAIN_SPLIT = "test"


@dataclass(frozen=True, slots=True)
class Source:
    """What a path given to `report` holds: evaluations, and the run around them when there is one."""

    path: Path
    evals: tuple[EvalResult, ...]
    run: RunDir | None
    image_folders: tuple[Path, ...]


def report(a: Path, b: Path | None = None, out: Path | None = None) -> Path:
    """Compare A and B (each an evaluation file, a run directory, or a folder of evaluation files) and write `out`/report.md; returns its path.

    Without B, A must hold evaluations of the base and of a trained model on the same items. Of several versions of a model the newest counts.
    Every list of items that both have answered is compared; the first (`test` when there is one) is the page's subject.
    `out` None means B/report for a folder, and the folder `report` beside a file.
    Raises UsageError when nothing can be paired, RunError when a file is damaged.
    """
    source_a = read_source(Path(a))
    source_b = source_a if b is None else read_source(Path(b))
    comparisons = _pair_within(source_a) if b is None else _pair_across(source_a, source_b)
    main, *others = comparisons
    names = page.name_models(main.a, main.b)
    out = Path(out) if out is not None else (source_b.path if source_b.path.is_dir() else source_b.path.parent) / "report"
    images = (*source_a.image_folders, *source_b.image_folders)
    runs = {str(s.run.path): s.run for s in (source_a, source_b) if s.run is not None}
    sections = [
        _summary(main, others),
        _rates(main, names, out),
        _flips(main, names, images, out),
        _splits(comparisons, names, out),
        _lengths(main, names, out),
        _categories(main, names),
        _training(runs, source_b, out),
        "## How this was measured\n\n" + _bullets(page.measured(main, names)),
    ]
    target = out / "report.md"
    write_file(target, ("\n\n".join(section for section in sections if section) + "\n").encode())
    return target


def read_source(path: Path) -> Source:
    """Read the evaluations at `path`. Raises UsageError when there are none, RunError when one is damaged."""
    if path.is_file():
        files, folder = [path], path.parent
    elif path.is_dir():
        folder = path / "eval" if (path / "eval").is_dir() else path
        files = sorted(folder.glob("*.json"))
        if not files:
            raise UsageError(f"{path} holds no evaluation; make one with: seegrad eval {path}")
    else:
        raise UsageError(f"{path} does not exist; give an evaluation file (*.json) or a run directory")
    run = RunDir.open(folder.parent) if (folder.parent / "config.toml").is_file() else None
    return Source(path, tuple(EvalResult.from_json(file) for file in files), run, (folder / "images", folder.parent / "images"))


def _pair_within(source: Source) -> list[Comparison]:
    """Base against newest, for every list of items that one folder holds for both."""
    found = []
    for group in _groups(source.evals):
        base, newest = min(group, key=_version), max(group, key=_version)
        if base.version == 0 and newest.version > 0:
            found.append(compare(base, newest))
    if not found:
        names = ", ".join(f"{result.name} (step {result.version}, {len(result.items)} items)" for result in source.evals)
        raise UsageError(f"{source.path} holds no base and trained evaluation of the same items ({names}); {_missing(source)}")
    return sorted(found, key=_importance)


def _missing(source: Source) -> str:
    """What to type to get the evaluation that is not there."""
    trained = sorted((result for result in source.evals if result.version > 0), key=_rank)
    if source.run is None:
        return "name two: seegrad report A.json B.json"
    path = source.run.path
    if not trained:
        return f"evaluate the trained model on them: seegrad eval {path}"
    split, number = trained[0].split, len(trained[0].items)
    words = f"seegrad eval {source.run.config().model.base} --recipe {path / 'config.toml'} --split {split} --num-items {number}"
    return f"evaluate the base too: {words} --out {path / 'eval' / f'base-{split}.json'}"


def _pair_across(source_a: Source, source_b: Source) -> list[Comparison]:
    """Newest of A against newest of B, for every list of items that both hold."""
    newest_a = [max(group, key=_version) for group in _groups(source_a.evals)]
    newest_b = [max(group, key=_version) for group in _groups(source_b.evals)]
    found = [compare(a, b) for a in newest_a for b in newest_b if same_items(a, b)]
    if not found:
        compare(min(newest_a, key=_rank), min(newest_b, key=_rank))  # says what differs
    return sorted(found, key=_importance)


def _groups(evals: Sequence[EvalResult]) -> list[list[EvalResult]]:
    groups: dict[frozenset[str], list[EvalResult]] = {}
    for result in evals:
        groups.setdefault(frozenset(item.id for item in result.items), []).append(result)
    return list(groups.values())


def _version(result: EvalResult) -> tuple[int, str]:
    return result.version, result.name


def _rank(result: EvalResult) -> tuple[bool, int, str]:
    return result.split != MAIN_SPLIT, -len(result.items), result.name


def _importance(comparison: Comparison) -> tuple[bool, int, str]:
    return _rank(comparison.a)


def _summary(main: Comparison, others: Sequence[Comparison]) -> str:
    names = page.name_models(main.a, main.b)
    return f"**{page.headline(main, names)}**\n\n" + _bullets(page.findings(main, {_split(other): other for other in others}))


def _rates(main: Comparison, names: Names, out: Path) -> str:
    write_file(out / "rates.png", figures.rates(main, names.short_a, names.short_b))
    return f"## The numbers\n\n{page.numbers(main, names)}\n\n![accuracy and readable answers of both models](rates.png)"


def _flips(main: Comparison, names: Names, images: Sequence[Path], out: Path) -> str:
    improved, worsened = _form_and_sight(main.improved, NUM_IMPROVED), _spread(main.worsened, NUM_WORSENED)
    blocks = ["## What changed", page.flips(main, names)]
    shown = [*((pair, f"now right: {pair.a.id}") for pair in improved), *((pair, f"now wrong: {pair.a.id}") for pair in worsened)]
    pictures = {pair.a.id: path for pair, _ in shown if (path := _picture(pair.b, images)) is not None}
    strip = [_shown(pair, title, names, pictures[pair.a.id].read_bytes()) for pair, title in shown if pair.a.id in pictures]
    if strip:
        write_file(out / "examples.png", figures.strip(strip))
        blocks.append("![pictures with the answers of both models](examples.png)")
    elif any(pair.b.images for pair, _ in shown):
        blocks.append(f"The pictures were not found (looked in {', '.join(str(folder) for folder in dict.fromkeys(images))}).")
    for title, pairs in (("From wrong to right", improved[:3]), ("From right to wrong", worsened[:3])):
        if pairs:
            blocks.append(f"### {title}")
            blocks += [page.example(pair, names) for pair in pairs]
    return "\n\n".join(blocks)


def _shown(pair: Pair, title: str, names: Names, image: bytes) -> figures.Shown:
    question = pair.a.question.strip().partition("\n")[0]
    asked = question if question.isascii() else f"asked for: {pair.a.tags['kind']}" if "kind" in pair.a.tags else "question: see the page"
    lines = [asked, f"gold: {pair.a.answer}", *(f"{name}: {_said(item)}" for name, item in ((names.short_a, pair.a), (names.short_b, pair.b)))]
    colored = ((figures.COLOR_GOLD, _box(pair.a.answer)), (figures.COLOR_A, _box(pair.a.parsed)), (figures.COLOR_B, _box(pair.b.parsed)))
    return figures.Shown(image, title, tuple(lines), tuple((color, box) for color, box in colored if box is not None))


def _said(item: EvalItem) -> str:
    return "no readable answer" if item.parsed is None else f"{item.parsed} ({'right' if item.correct else 'wrong'})"


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    """The box in an answer of exactly four numbers `x1,y1,x2,y2`, else None."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text or "")
    if len(numbers) != 4 or re.search(r"[^\d\s.,;()\[\]-]", text or ""):
        return None
    x1, y1, x2, y2 = map(float, numbers)
    return (x1, y1, x2, y2) if x1 <= x2 and y1 <= y2 else None


def _picture(item: EvalItem, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders for digest in item.images[:1] if (path := folder / f"{digest}.png").is_file()), None)


def _form_and_sight(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """`count` improved pairs, half of them with a readable wrong answer before, where there are such: both ways of improving are shown."""
    misread = [pair for pair in pairs if pair.a.parsed is not None]
    unreadable = [pair for pair in pairs if pair.a.parsed is None]
    first = _spread(misread, max(count - count // 2, count - len(unreadable)))
    return [*first, *_spread(unreadable, count - len(first))]


def _spread(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """`count` pairs at equal distances through the list: the same ones each time, chosen by nobody."""
    return [pairs[position * len(pairs) // count] for position in range(count)] if len(pairs) > count else list(pairs)


def _splits(comparisons: Sequence[Comparison], names: Names, out: Path) -> str:
    if len(comparisons) < 2:
        return ""
    accuracies = {_split(comparison): (comparison.accuracy.a, comparison.accuracy.b) for comparison in comparisons}
    write_file(out / "splits.png", figures.splits(accuracies, names.short_a, names.short_b))
    tables = [f"On `{_split(other)}`:\n\n{page.numbers(other, names)}" for other in comparisons[1:]]
    return "\n\n".join(["## Beyond the test split", "![accuracy on each split](splits.png)", *tables])


def _split(comparison: Comparison) -> str:
    return comparison.a.split or comparison.a.name


def _lengths(main: Comparison, names: Names, out: Path) -> str:
    bins = {names.short_a: length_bins(main.a), names.short_b: length_bins(main.b)}
    write_file(out / "lengths.png", figures.accuracy_by_length(bins))
    return f"## Accuracy by answer length\n\n![accuracy against answer length](lengths.png)\n\n{page.lengths(bins)}"


def _categories(main: Comparison, names: Names) -> str:
    tables = page.categories(main, names)
    return f"## Accuracy by kind of question\n\n{tables}" if tables else ""


def _training(runs: Mapping[str, RunDir], source: Source, out: Path) -> str:
    records: dict[str, list[dict[str, Any]]] = {path: run.metrics() for path, run in runs.items()}
    records = {path: lines for path, lines in records.items() if lines}
    picture = figures.learning_curves({Path(path).name: lines for path, lines in records.items()}, _greedy_curve(source))
    if picture is None:
        return ""
    write_file(out / "learning.png", picture)
    blocks = ["## While training", "![learning curves](learning.png)"]
    for path, lines in records.items():
        blocks.append(f"`{Path(path).name}`: {len(lines):,} steps. First tenth → last tenth:\n\n{_bullets(page.trend(lines))}")
    return "\n\n".join(blocks)


def _greedy_curve(source: Source) -> list[tuple[int, float]]:
    """Greedy accuracy (0 to 1) by step, from the list of items that was evaluated at the most steps; empty with fewer than three."""
    groups = [{result.version: result for result in group if result.graded} for group in _groups(source.evals)]
    longest = max(groups, key=len)
    points = [(step, [item.correct for item in result.graded]) for step, result in sorted(longest.items())]
    return [(step, sum(hits) / len(hits)) for step, hits in points] if len(points) > 2 else []


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
