"""Evaluation files and run directories → one Markdown page with figures. Nothing is sampled: what the page says is in the files.

A, B ─▶ evaluations on the same items, paired ─┐
        metrics.jsonl of their runs ───────────┼─▶ out/report.md + out/*.png
        images/<sha256>.png ───────────────────┘
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seegrad import accounting, figures, page
from seegrad.compare import Comparison, Pair, compare, length_bins, pass_curve, same_items
from seegrad.errors import UsageError
from seegrad.evaluate import EvalItem, EvalResult, NotAnEvaluation, write_file
from seegrad.images import content_hash
from seegrad.page import Names
from seegrad.rundir import RunDir
from seegrad.summary import num_asked

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
        _several_answers(comparisons, out),
        _splits(comparisons, names, out),
        _lengths(main, names, out),
        _categories(main, names),
        _training(runs, source_b, out),
        "## How this was measured\n\n" + page.bullets(page.measured(main, names)),
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
    evals = (EvalResult.from_json(files[0]),) if path.is_file() else tuple(filter(None, map(_evaluation, files)))
    if not evals:
        raise UsageError(f"{path} holds no evaluation; make one with: seegrad eval {path}")
    return Source(path, evals, run, (folder / "images", folder.parent / "images"))


def _evaluation(file: Path) -> EvalResult | None:
    """None for JSON of another kind that lies in the folder, such as an export in the lab's form."""
    try:
        return EvalResult.from_json(file)
    except NotAnEvaluation:
        return None


def _pair_within(source: Source) -> list[Comparison]:
    """Base against newest, for every list of items that one folder holds for both; asked in the same way where both were."""
    found = [pair for group in _groups(source.evals, _how) if (pair := _base_and_newest(group)) is not None]
    paired = {_ids(comparison.a) for comparison in found}
    found += [pair for group in _groups(source.evals) if _ids(group[0]) not in paired and (pair := _base_and_newest(group)) is not None]
    if not found:
        names = ", ".join(f"{result.name} (step {result.version}, {len(_ids(result))} items)" for result in source.evals)
        raise UsageError(f"{source.path} holds no base and trained evaluation of the same items ({names}); {_missing(source)}")
    return sorted(found, key=_importance)


def _base_and_newest(group: Sequence[EvalResult]) -> Comparison | None:
    base, newest = min(group, key=_version), max(group, key=_version)
    return compare(base, newest) if base.version == 0 and newest.version > 0 else None


def _missing(source: Source) -> str:
    """What to type to get the evaluation that is not there."""
    trained = sorted((result for result in source.evals if result.version > 0), key=_rank)
    if source.run is None:
        return "name two: seegrad report A.json B.json"
    path = source.run.path
    if not trained:
        return f"evaluate the trained model on them: seegrad eval {path}"
    split, number, answers, params = trained[0].split, len(_ids(trained[0])), num_asked(trained[0].items), trained[0].params
    words = ["seegrad", "eval", source.run.config().model.base, "--recipe", str(path / "config.toml"), "--split", split, "--num-items", str(number)]
    if params.get("temperature"):
        seeds = len(params.get("seeds", [0]))
        words += ["--samples", str(answers // seeds), "--temperature", str(params["temperature"]), *(["--seeds", str(seeds)] if seeds > 1 else [])]
    name = "-".join(re.findall(r"[0-9A-Za-z]+", split))
    return f"evaluate the base too: {shlex.join([*words, '--out', str(path / 'eval' / f'base-{name}.json')])}"


def _pair_across(source_a: Source, source_b: Source) -> list[Comparison]:
    """Newest of A against newest of B, for every list of items that both hold; asked in the same way where both were."""
    newest_a = [max(group, key=_version) for group in _groups(source_a.evals, _how)]
    newest_b = [max(group, key=_version) for group in _groups(source_b.evals, _how)]
    same = [(a, b) for a in newest_a for b in newest_b if same_items(a, b)]
    alike = [(a, b) for a, b in same if _how(a) == _how(b)]
    paired = {_ids(a) for a, _ in alike}
    found = [compare(a, b) for a, b in (*alike, *((a, b) for a, b in same if _ids(a) not in paired))]
    if not found:
        compare(min(newest_a, key=_rank), min(newest_b, key=_rank))  # says what differs
    return sorted(found, key=_importance)


def _groups(evals: Sequence[EvalResult], how: Callable[[EvalResult], object] = lambda _: None) -> list[list[EvalResult]]:
    """Evaluations of the same items (asked in the same way)."""
    groups: dict[object, list[EvalResult]] = {}
    for result in evals:
        groups.setdefault((_ids(result), how(result)), []).append(result)
    return list(groups.values())


def _ids(result: EvalResult) -> frozenset[str]:
    return frozenset(item.id for item in result.items)


def _how(result: EvalResult) -> tuple[float, int]:
    """How the items were asked: temperature and answers to each."""
    return float(result.params.get("temperature", 0.0)), num_asked(result.items)


def _version(result: EvalResult) -> tuple[int, str]:
    return result.version, result.name


def _rank(result: EvalResult) -> tuple[bool, tuple[float, int], int, str]:
    return result.split != MAIN_SPLIT, _how(result), -len(_ids(result)), result.name


def _importance(comparison: Comparison) -> tuple[bool, tuple[float, int], int, str]:
    return _rank(comparison.a)


def _summary(main: Comparison, others: Sequence[Comparison]) -> str:
    names = page.name_models(main.a, main.b)
    return f"**{page.headline(main, names)}**\n\n" + page.bullets(page.findings(main, {_label(other): other for other in others}))


def _rates(main: Comparison, names: Names, out: Path) -> str:
    write_file(out / "rates.png", figures.rates(main, names.short_a, names.short_b))
    blocks = ["## The numbers", page.numbers(main, names), "![accuracy and readable answers of both models](rates.png)"]
    picture = figures.decomposition(main, names.short_a, names.short_b)
    if picture is not None:
        write_file(out / "form-and-sight.png", picture)
        blocks.append("![how much of the difference is form, how much is sight](form-and-sight.png)")
    return "\n\n".join(blocks)


def _flips(main: Comparison, names: Names, images: Sequence[Path], out: Path) -> str:
    improved, worsened = _form_and_sight(main.improved, NUM_IMPROVED), _spread(main.worsened, NUM_WORSENED)
    blocks = ["## What changed", page.flips(main, names)]
    shown = [*((pair, f"now right: {pair.id}") for pair in improved), *((pair, f"now wrong: {pair.id}") for pair in worsened)]
    pictures = {pair.id: found for pair, _ in shown if (found := _pictures(pair.b, images))}
    strip = [_shown(pair, title, names, pictures[pair.id]) for pair, title in shown if pair.id in pictures]
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


def _shown(pair: Pair, title: str, names: Names, images: tuple[bytes, ...]) -> figures.Shown:
    question = pair.a.question.strip().partition("\n")[0]
    asked = question if question.isascii() else f"asked for: {pair.a.tags['kind']}" if "kind" in pair.a.tags else "question: see the page"
    said = ((names.short_a, pair.a, pair.share_a), (names.short_b, pair.b, pair.share_b))
    often = "" if len(pair.answers_a) == len(pair.answers_b) == 1 else " {:.0%} right"
    lines = [asked, f"gold: {pair.a.answer}", *(f"{name}: {_said(item)}{often.format(share)}" for name, item, share in said)]
    colored = ((figures.COLOR_GOLD, _box(pair.a.answer)), (figures.COLOR_A, _box(pair.a.parsed)), (figures.COLOR_B, _box(pair.b.parsed)))
    return figures.Shown(images, title, tuple(lines), tuple((color, box) for color, box in colored if box is not None))


def _said(item: EvalItem) -> str:
    return "no readable answer" if item.parsed is None else f"{item.parsed} ({'right' if item.correct else 'wrong'})"


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    """The box in an answer of exactly four numbers `x1,y1,x2,y2`, else None."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text or "")
    if len(numbers) != 4 or re.search(r"[^\d\s.,;()\[\]-]", text or ""):
        return None
    x1, y1, x2, y2 = map(float, numbers)
    return (x1, y1, x2, y2) if x1 <= x2 and y1 <= y2 else None


def _pictures(item: EvalItem, folders: Sequence[Path]) -> tuple[bytes, ...]:
    """The item's pictures in order, those that are found and undamaged."""
    paths = ((folder / f"{digest}.png", digest) for digest in item.images for folder in folders)
    found = {digest: data for path, digest in paths if path.is_file() and content_hash(data := path.read_bytes()) == digest}
    return tuple(found[digest] for digest in item.images if digest in found)


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
    accuracies = {_label(comparison): (comparison.accuracy.a, comparison.accuracy.b) for comparison in comparisons}
    write_file(out / "splits.png", figures.splits(accuracies, names.short_a, names.short_b))
    tables = [f"On {page.code(_label(other))}:\n\n{page.numbers(other, names)}" for other in comparisons[1:]]
    return "\n\n".join([f"## Beyond {page.code(_label(comparisons[0]))}", "![accuracy on each split](splits.png)", *tables])


def _label(comparison: Comparison) -> str:
    """The split, and how it was asked where that was not once and greedily: `test, 8 answers at 0.7`."""
    split, asked = comparison.a.split or comparison.a.name, [_how(result) for result in (comparison.a, comparison.b)]
    ways = [f"{number} answer{'s' if number > 1 else ''} at {temperature:g}" for temperature, number in asked]
    return split if set(asked) == {(0.0, 1)} else ", ".join([split, *dict.fromkeys(ways)])


def _several_answers(comparisons: Sequence[Comparison], out: Path) -> str:
    """pass@k of the first comparison in which a model answered more than once."""
    comparison = next((one for one in comparisons if not one.once), None)
    if comparison is None:
        return ""
    names = page.name_models(comparison.a, comparison.b)
    curves = {names.short_a: pass_curve(comparison.a), names.short_b: pass_curve(comparison.b)}
    write_file(out / "passes.png", figures.passes(curves))
    title = f"## Several answers to a question: {page.code(_label(comparison))}"
    return f"{title}\n\n![pass@k and maj@k against the number of answers](passes.png)\n\n{page.passes(comparison, names)}"


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
        blocks.append(f"`{Path(path).name}`: {len(lines):,} steps. First tenth → last tenth:\n\n{page.bullets(page.trend(lines))}")
        blocks.append(f"In all:\n\n{page.bullets(accounting.summary(runs[path]))}")
    return "\n\n".join(blocks)


def _greedy_curve(source: Source) -> list[tuple[int, float]]:
    """Greedy accuracy (0 to 1) by step, from the list of items that was evaluated at the most steps; empty with fewer than three."""
    groups = [{result.version: result for result in group if result.graded} for group in _groups(source.evals, _how)]
    longest = max(groups, key=len)
    points = [(step, [item.correct for item in result.graded]) for step, result in sorted(longest.items())]
    return [(step, sum(hits) / len(hits)) for step, hits in points] if len(points) > 2 else []
