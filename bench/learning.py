"""Does it learn? Every recipe with several seeds through the real command line, the base and the trained model on the same test items, one table.

    python -m bench.learning                          count, choice, ground × seeds 0, 1, 2; what is finished is not run again
    python -m bench.learning --jobs 2                 two runs at a time, the cores shared between them
    python -m bench.learning --write-readme           and put the table between the markers of the README files
    python -m bench.learning --quick                  a few steps and items: does the bench itself work?
    python -m bench.learning --recipes count steps=50 one recipe, with settings that replace the recipe's

Everything is kept under --out: RECIPE/base.json, RECIPE/seed-S/ (a run directory, with its report) and learning.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from seegrad.compare import Comparison, compare
from seegrad.config import load_config
from seegrad.errors import RunError, SeegradError
from seegrad.evaluate import EvalResult
from seegrad.page import percent, points, table
from seegrad.report import report
from seegrad.rundir import RunDir

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ("count", "choice", "ground")
START, END = "<!-- learning:start -->", "<!-- learning:end -->"
HEADERS = {
    "README.md": ("recipe", "seed", "base right", "trained right", "gain, points (95 % interval)", "readable", "gain among readable", "mean IoU"),
    "README.zh-CN.md": ("任务", "种子", "基座正确率", "训练后正确率", "提升，百分点（95 % 区间）", "可读回答", "可读回答中的提升", "平均 IoU"),
}
CLOSINGS = {
    "README.md": "{gained} of {total} runs gain with the whole interval above 0; greedy answers to the same {items:,} test questions.",
    "README.zh-CN.md": "{total} 次训练中有 {gained} 次的提升区间整个在 0 以上；都在同样的 {items:,} 道测试题上贪心作答。",
}
QUICK = ("steps=2", "rollout.questions_per_step=2", "rollout.group_size=2", "rollout.max_tokens=16", "eval.every=0", "save.every=0")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured, where, and with how many threads for each process."""

    out: Path
    recipes: tuple[str, ...]
    seeds: tuple[int, ...]
    num_items: int
    overrides: tuple[str, ...]
    num_threads: int


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the table."""

    recipe: str
    seed: int
    comparison: Comparison


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print the table; 1 when a run failed, 130 after Ctrl-C, else 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.learning", description="Base and trained model on the same items, for recipes and seeds.")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that replace the recipes', e.g. steps=50")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), metavar="RECIPE", help="recipe names (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="S", help="training seeds (default: %(default)s)")
    parser.add_argument("--items", type=int, default=1000, help="test items (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"), help="where everything is kept (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few steps and items, in OUT-quick")
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md and README.zh-CN.md")
    given = parser.parse_intermixed_args(arguments)
    if given.quick and given.write_readme:
        parser.error("--quick measures nothing that belongs into the README; leave one of the two out")
    plan = Plan(
        out=given.out.with_name(f"{given.out.name}-quick") if given.quick else given.out,
        recipes=tuple(given.recipes),
        seeds=tuple(given.seeds),
        num_items=min(given.items, 16) if given.quick else given.items,
        overrides=(*(QUICK if given.quick else ()), *given.overrides),
        num_threads=max(1, (os.cpu_count() or 1) // given.jobs),
    )
    try:
        failures = run(plan, given.jobs)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    try:
        rows = collect(plan)
        text = render(rows, plan.num_items)
        print(f"\n{text}")
        (plan.out / "learning.md").write_text(text + "\n", encoding="utf-8")
        if given.write_readme and not failures:
            for name in HEADERS:
                write_between(ROOT / name, render(rows, plan.num_items, name))
    except SeegradError as error:
        failures.append(str(error))
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0


def run(plan: Plan, jobs: int) -> list[str]:
    """Base evaluations first, then the seeds; returns one line per step that failed. What exists is kept."""
    bases = [lambda recipe=recipe: measure_base(plan, recipe) for recipe in plan.recipes]
    seeds = [lambda recipe=recipe, seed=seed: measure_seed(plan, recipe, seed) for seed in plan.seeds for recipe in plan.recipes]
    failures: list[str] = []
    pool = ThreadPoolExecutor(jobs)
    try:
        for stage in (bases, seeds):
            failures += [failure for failure in pool.map(_caught, stage) if failure is not None]
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C nothing new starts; the commands that run have got the signal themselves and end cleanly
    return failures


def measure_base(plan: Plan, recipe: str) -> None:
    """Evaluate the base model on the recipe's test items, unless that is done."""
    path = base_path(plan, recipe)
    if not _holds(path, plan.num_items):
        _seegrad(plan, "eval", "tiny", "--recipe", recipe, "--split", "test", "--num-items", str(plan.num_items), "--out", str(path), *plan.overrides)


def measure_seed(plan: Plan, recipe: str, seed: int) -> None:
    """Train one seed (or continue it), evaluate it, write its report; each unless it is done."""
    folder, path = run_path(plan, recipe, seed), trained_path(plan, recipe, seed)
    if (folder / "config.toml").is_file():
        _check_settings(plan, folder, recipe, seed)
    if not _finished(folder):
        _seegrad(plan, "train", recipe, f"seed={seed}", *plan.overrides, "--out", str(folder), "--resume")
    if not _holds(path, plan.num_items):
        _seegrad(plan, "eval", str(folder), "--split", "test", "--num-items", str(plan.num_items), "--out", str(path))
    report(base_path(plan, recipe), path, folder / "report")


def collect(plan: Plan) -> list[Row]:
    """Every finished run, compared with its base. Raises RunError when there is none."""
    places = [(recipe, seed) for recipe in plan.recipes for seed in plan.seeds if _holds(trained_path(plan, recipe, seed), plan.num_items)]
    if not places:
        raise RunError(f"no run under {plan.out} is finished")
    return [Row(r, s, compare(EvalResult.from_json(base_path(plan, r)), EvalResult.from_json(trained_path(plan, r, s)))) for r, s in places]


def render(rows: Sequence[Row], num_items: int, page: str = "README.md") -> str:
    """The Markdown table: right and readable answers in percent, gains in points with paired 95 % intervals; in the language of `page`."""
    body = []
    for row in rows:
        found, iou = row.comparison, row.comparison.scores.get("iou")
        gains = [points(measure).replace(" points", "").replace("95 % interval ", "") for measure in (found.accuracy, found.accuracy_given_parsable)]
        readable = f"{percent(found.format_rate.a)} → {percent(found.format_rate.b)}"
        overlap = f"{iou.a.estimate:.3f} → {iou.b.estimate:.3f}" if iou is not None else "–"
        body.append([f"`{row.recipe}`", str(row.seed), percent(found.accuracy.a), percent(found.accuracy.b), gains[0], readable, gains[1], overlap])
    gained = sum(row.comparison.accuracy.difference.low > 0 for row in rows)
    return f"{table(HEADERS[page], body)}\n\n{CLOSINGS[page].format(gained=gained, total=len(rows), items=num_items)}"


def write_between(path: Path, text: str) -> None:
    """Replace what stands between the markers of a file. Raises RunError when it has no such markers."""
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    if page.count(START) != 1 or page.count(END) != 1 or page.index(START) > page.index(END):
        raise RunError(f"{path} needs the lines {START} and {END}, once each and in this order")
    head, tail = page[: page.index(START) + len(START)], page[page.index(END) :]
    path.write_text(f"{head}\n{text}\n{tail}", encoding="utf-8")


def base_path(plan: Plan, recipe: str) -> Path:
    return plan.out / recipe / "eval" / "base.json"


def run_path(plan: Plan, recipe: str, seed: int) -> Path:
    return plan.out / recipe / f"seed-{seed}"


def trained_path(plan: Plan, recipe: str, seed: int) -> Path:
    return run_path(plan, recipe, seed) / "eval" / "test.json"


def _seegrad(plan: Plan, *words: str) -> None:
    """Run one command with its output in a log beside the results. Raises RunError with its last line when it fails."""
    search = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, "OMP_NUM_THREADS": str(plan.num_threads), "PYTHONPATH": search}
    print(f"seegrad {' '.join(words)}", flush=True)
    plan.out.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.executable, "-m", "seegrad", *words], env=environment, capture_output=True, text=True, check=False)
    with (plan.out / "log.txt").open("a", encoding="utf-8") as log:
        log.write(f"$ seegrad {' '.join(words)}\n{done.stdout}{done.stderr}\n")
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise RunError(f"seegrad {' '.join(words)} ended with {done.returncode}: {lines[-1]}")


def _holds(path: Path, num_items: int) -> bool:
    return path.is_file() and len(EvalResult.from_json(path).items) == num_items


def _check_settings(plan: Plan, folder: Path, recipe: str, seed: int) -> None:
    """A run that is there must be the run that is asked for."""
    asked = load_config(recipe, [f"seed={seed}", *plan.overrides]).model_copy(update={"out": ""})
    if RunDir.open(folder).config().model_copy(update={"out": ""}) != asked:
        raise RunError(f"{folder} was made with other settings than these; give another --out, or remove it")


def _finished(folder: Path) -> bool:
    return (folder / "config.toml").is_file() and RunDir.open(folder).status().state == "finished"


def _caught(step: Callable[[], None]) -> str | None:
    try:
        step()
    except SeegradError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
