"""`seegrad reproduce RECIPE`: a published result as one command, which may be interrupted anywhere and is repeated until it is done.

    settings ────▶ base evaluation ──────▶ training ─────▶ trained evaluation ─▶ report
    config.toml    eval/base-SPLIT.json    checkpoints/    eval/SPLIT.json       report/report.md + lab-*.json

All of it lies in one run directory, so that every other command can read it. A stage is skipped when its result is whole and belongs to these
settings; one that was interrupted leaves nothing (an evaluation, a report) or is continued (training).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seegrad.checkpoints import checkpoints_in
from seegrad.config import Config, load_config
from seegrad.durable import remove_partial
from seegrad.errors import DataError, SeegradError, UsageError
from seegrad.evaluate import EvalItem, EvalResult, write_images
from seegrad.exam import Counter, Exam, sit, split_of, told
from seegrad.images import content_hash
from seegrad.lab_json import write_lab_json
from seegrad.launch import Launch, first_difference, start
from seegrad.report import report
from seegrad.rundir import RunDir, RunWriter
from seegrad.statistics import Interval, wilson
from seegrad.types import Example
from seegrad.wiring import BUNDLED, CONFIG_FILE, Parts, Target, file_word, find_target

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Published:
    """A result that somebody has published: right and readable answers of `num` items, before and after training."""

    source: str
    model: str
    num: int
    right: tuple[int, int]
    readable: tuple[int, int]


PUBLISHED = {
    "geoqa": Published("agentic-rl-lab, chapter 09 (Vision GRPO)", "Qwen/Qwen3.5-4B", 100, (71, 87), (75, 91)),
}


def reproduce(recipe: str, settings: Sequence[str], *, split: str | None = None, out: Path | None = None) -> int:
    """Do what is left to do; returns 0 when the report is there, 130 when a signal ended the training after a whole step.

    Raises UsageError when the directory belongs to other settings, KeyboardInterrupt when an evaluation is interrupted.
    """
    config = load_config(recipe, settings)
    path = out or Path(config.out or f"runs/reproduce-{file_word(config.name)}")
    work = Reproduction(config, path, split_of(split, settings, config))
    work.prepare()
    print(f"reproduce {config.name} in {path}")
    waiting = list(work.stages)
    while waiting and waiting[0].is_done():
        print(f"  {waiting[0].name:20}done: {waiting.pop(0).place}", flush=True)
    for stage in waiting:
        print(f"  {stage.name:20}{stage.progress()}", flush=True)
    for number, stage in enumerate(waiting):
        if number and stage.is_done():
            continue
        print(f"{stage.name} …", flush=True)
        if stage.run():
            print("repeat the same command to continue")
            return INTERRUPTED
    print("\n" + "\n".join(work.outcome()))
    return 0


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a reproduction. `run` returns True when it was interrupted and kept what it had; `progress` says how far a stage is that is not
    done; `place` is where its result lies."""

    name: str
    place: Path
    is_done: Callable[[], bool]
    run: Callable[[], bool]
    progress: Callable[[], str] = lambda: "to do"


@dataclass(frozen=True)
class Reproduction:
    """The stages of one recipe in one run directory. The items are the first `eval.num_items` of the split."""

    config: Config
    path: Path
    split: str

    def prepare(self) -> None:
        """Check that the directory is free or holds a run of these settings, and make it one. Cheap mistakes are found before anything is made."""
        if (self.path / CONFIG_FILE).is_file():
            difference = first_difference(load_config(str(self.path / CONFIG_FILE)), self.config)
            if difference is None:
                return
            if self._has_results():
                raise UsageError(
                    f"{self.path} was started with other settings ({difference}); repeat the command without the change, or give another --out"
                )
        _ = self.examples, self.parts.examples(self.config.data.train_split), self.parts.renderer, self.parts.rewards
        if (self.path / CONFIG_FILE).is_file():
            with RunWriter.resume(self.path):  # nobody else is at it
                (self.path / CONFIG_FILE).unlink()  # settings of a start that came to nothing
        RunWriter.create(self.path, self.config).close()

    @property
    def stages(self) -> tuple[Stage, ...]:
        base, trained = self._eval_path("base-"), self._eval_path("")
        return (
            Stage("base evaluation", base, lambda: self._is_whole(self.base), lambda: self._sit(self.base)),
            Stage("training", self.path / "checkpoints", self._is_trained, self._train, self._steps_kept),
            Stage("trained evaluation", trained, lambda: self._is_whole(self.trained), lambda: self._sit(self.trained)),
            Stage("report", self._report_path, self._is_reported, self._report),
        )

    @cached_property
    def parts(self) -> Parts:
        return Parts(self.config)

    @cached_property
    def examples(self) -> Sequence[Example]:
        """The items of the evaluations."""
        rows = self.parts.examples(self.split)
        return rows[: min(self.config.eval.num_items, len(rows))]

    @property
    def base(self) -> Exam:
        name = self.config.model.base
        target = Target(Path(name).name if name != BUNDLED and Path(name).is_dir() else name, self.config)
        return Exam(target, self.split, out=self._eval_path("base-"))

    @property
    def trained(self) -> Exam:
        """Raises RunError before there is a checkpoint."""
        return Exam(find_target(str(self.path)), self.split, out=self._eval_path(""))

    def outcome(self) -> list[str]:
        """The headline, this run's figures, and the published ones beside them."""
        both = [EvalResult.from_json(self._eval_path(prefix)) for prefix in ("base-", "")]
        lines = [self._report_path.read_text(encoding="utf-8").partition("\n")[0].strip("*"), ""]
        lines += [_row("", "base", "trained"), *_figures(both), f"  {self.config.model.base}, {len(both[0].items)} answers each"]
        known = PUBLISHED.get(self.config.name)
        if known is not None:
            pairs = [("accuracy", known.right), ("format rate", known.readable)]
            lines += ["", _row("published", "base", "trained")]
            lines += [_row(name, *(_percent(wilson(count, known.num)) for count in counts)) for name, counts in pairs]
            lines += [f"  {known.source}: {known.model}, n = {known.num}, greedy, one seed; the intervals are those of n = {known.num}"]
        return [*lines, "", f"report: {self._report_path}"]

    def _has_results(self) -> bool:
        run = RunDir.open(self.path)
        return bool(run.eval_names() or run.checkpoints() or run.metrics())

    def _eval_path(self, prefix: str) -> Path:
        return self.path / "eval" / f"{prefix}{file_word(self.split)}.json"

    @property
    def _report_path(self) -> Path:
        return self.path / "report" / "report.md"

    def _lab_path(self, name: str) -> Path:
        return self.path / "report" / f"lab-{name}.json"

    def _is_whole(self, exam: Exam) -> bool:
        """Whether the exam's file is there, whole, and of this model, these items and this way of asking."""
        try:
            result = EvalResult.from_json(exam.path)
        except SeegradError:
            return False
        settings, params = self.config.eval, result.params
        asked = self.parts.sampling(temperature=settings.temperature, max_tokens=settings.max_tokens)
        return (
            (result.model, result.version, result.dataset, result.split) == (exam.target.label, exam.target.step, self.config.data.name, self.split)
            and len(result.items) == len(self.examples) * settings.samples
            and all(params.get(name) == getattr(asked, name) for name in ("temperature", "max_tokens", "top_p", "top_k"))
            and (params.get("num_samples"), params.get("seeds")) == (settings.samples, list(exam.seeds))
            and self._is_first(result.items[0])
        )

    def _is_first(self, item: EvalItem) -> bool:
        """Whether an item is what the settings now make of the first row: its words, its language, its picture."""
        try:
            first = self.examples[0]
        except DataError:
            return item.error is not None
        return (item.id, item.question, item.images) == (first.id, first.question, tuple(content_hash(data) for data in first.images))

    def _sit(self, exam: Exam) -> bool:
        with RunWriter.resume(self.path):  # nobody else writes meanwhile
            parts = Parts(self.config)
            try:
                result = sit(exam, parts, Counter("answered"))
            finally:
                parts.close()
        print("\n".join(told(result)))
        return False

    def _is_trained(self) -> bool:
        found = checkpoints_in(self.path / "checkpoints")
        return (
            bool(found) and found[-1].step >= self.config.steps and found[-1].damage() is None and RunDir.open(self.path).status().state == "finished"
        )

    def _train(self) -> bool:
        return start(Launch(self.config, self.path, continues=True)) != 0

    def _steps_kept(self) -> str:
        found = checkpoints_in(self.path / "checkpoints")
        return f"step {found[-1].step} of {self.config.steps} is kept" if found else "to do"

    def _is_reported(self) -> bool:
        """Whether the report is there and not older than what it is about; report.md is the last file that a report writes."""
        evaluations = [self._eval_path(prefix) for prefix in ("base-", "")]
        if not all(path.is_file() for path in (self._report_path, *evaluations)):
            return False
        return self._report_path.stat().st_mtime_ns >= max(path.stat().st_mtime_ns for path in evaluations)

    def _report(self) -> bool:
        with RunWriter.resume(self.path):
            remove_partial(*(self.path / folder for folder in ("eval", "images", "report")))
            write_images(self.examples, self.path / "images")  # an evaluation that was killed at its end may lack some
            for prefix, name in (("base-", "base"), ("", "trained")):
                write_lab_json(EvalResult.from_json(self._eval_path(prefix)), self._lab_path(name))
            report(self.path)
        return False


def _figures(results: Sequence[EvalResult]) -> list[str]:
    rows = []
    for label, name in (("accuracy", "accuracy"), ("format rate", "format_rate")):
        rates = [result.summary[name] for result in results]
        rows.append(_row(label, *("–" if rate is None else _percent(Interval(rate["estimate"], rate["low"], rate["high"])) for rate in rates)))
    return rows


def _row(name: str, base: str, trained: str) -> str:
    return f"  {name:14}{base:26}{trained}".rstrip()


def _percent(rate: Interval) -> str:
    return f"{rate.estimate:.1%}  [{rate.low:.1%}, {rate.high:.1%}]"
