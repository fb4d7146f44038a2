"""The `seegrad` command: one function per verb. Arguments are read first; torch and the models are imported only when a command needs them."""

from __future__ import annotations

import io
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from seegrad.errors import RunError, SeegradError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seegrad.types import Example

EXIT_CODES = """Exit codes: 0 done · 1 a check of `doctor` failed, or a defect · 2 command line or config · 3 data · 4 reward · 5 sampler ·
6 backend · 7 run directory or checkpoint · 8 missing extra · 130 interrupted (the run can be continued)."""

app = typer.Typer(
    help="Reinforcement learning for vision-language models, end to end.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
data_app = typer.Typer(help="Data sets: list, look at, download.", rich_markup_mode=None, no_args_is_help=True)
app.add_typer(data_app, name="data")

Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings that replace the recipe's, e.g. steps=50.")]
RecipeName = Annotated[str, typer.Option("--recipe", "-r", help="A recipe name or TOML file; see `seegrad list`.")]
OptionalRecipe = Annotated[str | None, typer.Option("--recipe", "-r", help="Settings to use; default: the run's own, or `count` for a base model.")]
DataName = Annotated[str | None, typer.Option("--data", help="Another data set: a name or file.py:function.")]
ModelName = Annotated[str | None, typer.Option("--model", help="The base model: tiny, a folder, or a hub id.")]
Split = Annotated[str, typer.Option(help="Which split.")]
MainSplit = Annotated[str | None, typer.Option("--split", help="Which split (default: test; eval.split where the data has no test).")]
TargetName = Annotated[str, typer.Argument(metavar="TARGET", help="A base model, a run directory, a checkpoint or a model folder.")]


def main() -> NoReturn:
    """Entry point: every error becomes one line on stderr and its exit code; `--debug` anywhere shows the traceback."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character gets its number, not an error
        if isinstance(stream, io.TextIOWrapper) and (stream.encoding.lower(), stream.errors) != ("utf-8", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=arguments, prog_name="seegrad", standalone_mode=False)
        if code == 130:  # typer turns an interrupt into this code without a word
            print("interrupted", file=sys.stderr)
        sys.stdout.flush()
    except (SeegradError, typer.TyperException) as error:
        if debug:
            raise
        code = _tell(error)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # `seegrad … | head`: the reader has left, there is nobody to tell
        sys.stdout = None
        code = 1
    except Exception as error:
        if debug:
            raise
        code = _tell_unforeseen(error)
    sys.exit(code if isinstance(code, int) else 0)


def _tell(error: SeegradError | typer.TyperException) -> int:
    message = (
        str(error)
        if isinstance(error, SeegradError)
        else f"{error.format_message()} (`seegrad --help` and `seegrad COMMAND --help` list what exists)"
    )
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return error.exit_code


def _tell_unforeseen(error: Exception) -> int:
    """A file that the system refuses is nobody's defect; anything else is one, and the line says where it was noticed."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror}; check that it exists, that you may use it, and that the disk has space", file=sys.stderr)
        return RunError.exit_code
    frame = traceback.extract_tb(error.__traceback__)[-1]
    print(f"error: unexpected {said} ({frame.filename}:{frame.lineno}); the same command with --debug shows the traceback", file=sys.stderr)
    return 1


def _print_version(wanted: bool) -> None:
    if wanted:
        from seegrad import __version__

        print(f"seegrad {__version__}")
        raise typer.Exit(0)


@app.callback()
def top(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)] = False,
) -> None:
    """Reinforcement learning for vision-language models, end to end."""


@app.command(epilog=EXIT_CODES)
def train(
    recipe: Annotated[str | None, typer.Argument(metavar="RECIPE", help="A recipe name or TOML file (default: count).")] = None,
    overrides: Overrides = None,
    model: ModelName = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run: RECIPE or --out names it; neither: the newest in runs/.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and stop.")] = False,
    show_samples: Annotated[bool, typer.Option("--show-samples", help="Print every answer of every step.")] = False,
    save: Annotated[bool, typer.Option("--save/--no-save", help="Keep the run on disk.")] = True,
    out: Annotated[Path | None, typer.Option(help="The run directory (default: a new one in runs/).")] = None,
) -> None:
    """Train a model by reinforcement learning.

    `seegrad train --resume DIR` continues DIR; `seegrad train RECIPE --out DIR --resume` starts DIR or continues it, whichever is needed.
    """
    from seegrad.config import resolved_toml
    from seegrad.launch import read_launch, start

    words = [word for word in (recipe, *(overrides or [])) if word is not None]
    launch = read_launch(words, model=model, out=out, resume=resume)
    if dry_run:
        print(resolved_toml(launch.config), end="")
        return
    raise typer.Exit(start(launch, show_samples=show_samples, save=save))


@app.command("eval", epilog=EXIT_CODES)
def evaluate_command(
    target: TargetName = "tiny",
    overrides: Overrides = None,
    recipe: OptionalRecipe = None,
    data: DataName = None,
    split: MainSplit = None,
    num_items: Annotated[
        int | None, typer.Option("--num-items", "-n", min=1, help="How many items, from the first (default: eval.num_items).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every item of the split.")] = False,
    samples: Annotated[int | None, typer.Option("--samples", "-k", min=1, help="Answers to each item: mean@k, pass@k (eval.samples).")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy (eval.temperature).")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same answers.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Ask again with this many seeds, from --seed on, and show how far they lie apart.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The JSON file (default: in the run's eval/, or in runs/base-NAME/eval/).")] = None,
    lab_json: Annotated[Path | None, typer.Option(help="Also write the evaluation in the GeoQA lab's form to this file.")] = None,
) -> None:
    """Evaluate a model: every answer kept, rates with 95 % intervals. Greedy unless told.

    TARGET may also be an evaluation file (*.json): its numbers are printed (and exported with --lab-json) and nothing is asked.
    """
    from seegrad.exam import Counter, Exam, read_exam, sit, split_of, told
    from seegrad.lab_json import write_lab_json
    from seegrad.wiring import Parts, find_target

    target, settings = _name_first("tiny", target, overrides)
    settings += [f"data.name={data}"] if data else []
    settings += [f"eval.samples={samples}"] if samples is not None else []
    settings += [f"eval.temperature={temperature}"] if temperature is not None else []
    if target.endswith(".json") and Path(target).is_file():
        options = {"--recipe": recipe, "--num-items": num_items, "--all": every, "--seed": seed, "--seeds": seeds > 1, "--out": out}
        result = read_exam(Path(target), [*settings, *(name for name, value in options.items() if value)])
        if lab_json is not None:
            write_lab_json(result, lab_json)
        print("\n".join(told(result)))
        return
    if every and num_items is not None:
        raise UsageError(f"--all and --num-items {num_items} say different things; give one of them")
    found = find_target(target, recipe=recipe, overrides=settings)
    parts = Parts(found.config)
    exam = Exam(found, split_of(split, settings, found.config), 0 if every else num_items, tuple(range(seed, seed + seeds)), out, lab_json)
    try:
        result = sit(exam, parts, Counter("answered"))
    finally:
        parts.close()
    print("\n".join([*told(result), f"every item: {exam.path}"]))


@app.command(epilog=EXIT_CODES)
def report(
    before: Annotated[str, typer.Argument(metavar="A", help="A run directory or an evaluation file.")] = "",
    after: Annotated[str, typer.Argument(metavar="B", help="The one it is compared with.")] = "",
    out: Annotated[Path | None, typer.Option(help="The folder of the report (default: in the run directory).")] = None,
) -> None:
    """Compare two models on the same items: one Markdown page with figures.

    With one argument, a run directory: its base and trained evaluations are compared. With none: the newest run in runs/.
    """
    from seegrad.report import report as write_report
    from seegrad.wiring import run_names

    if not before:
        runs = run_names()
        if not runs:
            raise RunError("there is no run in runs/ to report on; start one: seegrad train count")
        before = runs[-1]
    print(f"report: {write_report(Path(before), Path(after) if after else None, out)}")


@app.command(epilog=EXIT_CODES)
def sample(
    target: TargetName = "tiny",
    question: Annotated[str, typer.Option("--question", "-q", help="A question of your own (with --image).")] = "",
    image: Annotated[list[Path] | None, typer.Option("--image", "-i", help="A picture of your own; may be given more than once.")] = None,
    recipe: OptionalRecipe = None,
    split: Annotated[str | None, typer.Option(help="Which split (default: eval.split).")] = None,
    index: Annotated[int, typer.Option(min=0, help="Which row of the split, when no question is given.")] = 0,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="How many answers.")] = 4,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answers.")] = 0,
    tokens: Annotated[bool, typer.Option("--tokens", help="Print every token with its logprob.")] = False,
) -> None:
    """Ask one question, print the answers with their logprobs.

    The question is a row of the data set, or your own with --question and --image.
    """
    from seegrad.rollout import answers
    from seegrad.wiring import Parts, find_target, own_example

    found = find_target(target, recipe=recipe)
    parts, split = Parts(found.config), split or found.config.eval.split
    example = own_example(question, image or []) if question or image else _row(parts.examples(split), split, index)
    prompt = parts.renderer.render(example)
    print(f"{example.question}\n  ({len(prompt)} prompt tokens, {sum(map(len, prompt.images))} of them picture; gold: {example.answer or 'unknown'})")
    params = parts.sampling(temperature=temperature, seed=seed)
    completions = found.sampler(parts).sample([prompt], params, num)[0]
    grades = [] if question or image else parts.rewards.grade_groups([(example, answers(completions))])[0]
    outcomes = [f", not graded: {grade.error}" if grade.error else f", reward {grade.reward:.2f}" for grade in grades]
    for number, (completion, grade) in enumerate(zip(completions, outcomes or [""] * num, strict=True), 1):
        total, length = float(completion.logprobs_T.sum()), len(completion.tokens_T)
        print(f"\n#{number}: {length} tokens, logprob {total:.2f} ({total / length:.3f} a token), {completion.stop_reason}{grade}\n{completion.text}")
        if tokens:
            pieces = zip(parts.renderer.tokens(completion.tokens_T), completion.logprobs_T, strict=True)
            print("  " + "  ".join(f"{piece!r} {value:.3f}" for piece, value in pieces))


@app.command("doctor", epilog=EXIT_CODES)
def doctor_command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe name or TOML file.")] = "count",
    overrides: Overrides = None,
    model: ModelName = None,
    num_items: Annotated[int, typer.Option("--num-items", "-n", min=1, help="Rows of each split to read with their pictures and to ask about.")] = 16,
    samples: Annotated[int, typer.Option(min=1, help="Answers to each of them.")] = 4,
    use_model: Annotated[bool, typer.Option("--model-part/--no-model", help="Open the model and sample answers, or leave that part out.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """Check a recipe before it costs anything.

    Rows, graders on gold and on wrong answers, prompt lengths, memory, the model's token counts, a few real answers. Exit code 1 when a check fails.
    """
    from seegrad.doctor import doctor

    name, settings = _name_first("count", recipe, overrides)
    raise typer.Exit(doctor(name, [*settings, *_model_setting(model)], num_items=num_items, num_samples=samples, model=use_model, as_json=as_json))


@app.command("reproduce", epilog=EXIT_CODES)
def reproduce_command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe name or TOML file.")] = "count",
    overrides: Overrides = None,
    model: ModelName = None,
    data: Annotated[str | None, typer.Option("--data", help="Where the rows are: a file, a folder or a hub id (data.path).")] = None,
    split: MainSplit = None,
    out: Annotated[Path | None, typer.Option(help="The run directory (default: runs/reproduce-RECIPE).")] = None,
) -> None:
    """Base evaluation, training, trained evaluation and report as one command.

    Interrupted anywhere, the same command continues; what is done already is not done again.
    """
    from seegrad.reproduce import reproduce

    name, settings = _name_first("count", recipe, overrides)
    settings += [*_model_setting(model), *([] if data is None else [f"data.path={json.dumps(data)}"])]
    raise typer.Exit(reproduce(name, settings, split=split, out=out))


@data_app.command("list", epilog=EXIT_CODES)
def data_list() -> None:
    """List the data sets: splits, answers, where they come from."""
    from seegrad.data.show import listing

    for line in listing():
        print(line)


@data_app.command("show", epilog=EXIT_CODES)
def data_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set or file.py:function.")] = "count",
    overrides: Overrides = None,
    split: Split = "train",
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="How many rows.")] = 16,
    out: Annotated[Path | None, typer.Option(help="The contact sheet (default: runs/NAME-SPLIT.png).")] = None,
) -> None:
    """Print the first rows of a split and save their pictures on one contact sheet.

    Settings say where and how rows are read: `seegrad data show table data.path=mine.jsonl`.
    """
    from seegrad.config import load_config
    from seegrad.contact import MAX_EXAMPLES, contact_sheet
    from seegrad.data.rows import load_rows
    from seegrad.data.show import shown
    from seegrad.data.skipping import about_rows
    from seegrad.evaluate import check_place, write_file
    from seegrad.wiring import file_word

    name, settings = _name_first("count", name, overrides)
    path = out or Path("runs") / f"{file_word(name)}-{file_word(split)}.png"
    check_place(path)
    rows = load_rows(split, load_config("count", [f"data.name={name}", *settings]).data)
    print("\n".join(filter(None, (f"{name}/{split}: {len(rows)} rows", about_rows(rows)))))
    examples: list[Example] = []
    for example, line in shown(rows, num):
        print(line)
        if len(examples) < MAX_EXAMPLES:
            examples.append(example)
    if any(example.images for example in examples):
        write_file(path, contact_sheet(examples))
        print(f"pictures: {path}" + (f" (of the first {MAX_EXAMPLES} rows)" if min(num, len(rows)) > MAX_EXAMPLES else ""))
    else:
        print("pictures: none in these rows")


@data_app.command("prepare", epilog=EXIT_CODES)
def data_prepare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set of `seegrad data list` that comes from a hub.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the parquet files (default: data/NAME).")] = None,
    revision: Annotated[str, typer.Option(help="A branch, tag or commit of it (default: the newest).")] = "",
    hub: Annotated[Literal["huggingface", "modelscope"], typer.Option(help="Which hub.")] = "huggingface",
    split: Annotated[list[str] | None, typer.Option(help="Only this split; may be given more than once.")] = None,
) -> None:
    """Download a data set once, look at every row, write one parquet file a split.

    `data.path=FOLDER` then reads these files. `data.path=…` here takes rows that are on this machine, or another hub id.
    """
    from seegrad.config import load_config
    from seegrad.data.prepare import prepare
    from seegrad.exam import Counter

    folder = out or Path("data") / name.replace("/", "-")
    given = [f"data.name={name}", f"data.revision={revision}", f"data.hub={hub}", *(overrides or [])]
    for number, part in enumerate(prepare(load_config("count", given).data, folder, split or (), lambda: Counter("looked at"))):
        if not number:
            print(f"{'split':12}{'rows':>8}{'good':>8}  file")
        print(f"{part.split:12}{part.num_rows:8,}{part.num_good:8,}  {part.path}")
        for reason, count in part.bad.items():
            print(f"{'':12}{count:8,} bad: {reason}")
    print(f"read them with: data.name={name} data.path={folder}")


@app.command("list", epilog=EXIT_CODES)
def list_command() -> None:
    """List what has a name: recipes, data sets, rewards, losses, runs …"""
    from seegrad import registry
    from seegrad.config import recipe_names
    from seegrad.wiring import run_names

    titles = {"dataset": "data sets", "reward": "rewards", "advantage": "advantages", "loss": "losses", "backend": "backends", "family": "families"}
    print(f"{'recipes':12}{', '.join(recipe_names())}")
    for kind in registry.TABLE:
        print(f"{titles[kind]:12}{', '.join(registry.names(kind))}")
    print(f"{'runs':12}{', '.join(run_names()) or 'none yet in runs/'}")


@app.command(epilog=EXIT_CODES)
def export(
    target: Annotated[str, typer.Argument(metavar="RUN", help="A run directory or a checkpoint.")],
    out: Annotated[Path, typer.Option(help="The folder to write; must not exist yet or be empty.")],
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="bfloat16 is half the size, rounded.")] = "float32",
) -> None:
    """Write a Hugging Face model folder: base and adapter merged.

    The folder has the tokenizer, chat template and image processor too; its logprobs equal those of base and adapter.
    """
    from seegrad.wiring import BUNDLED, find_target

    found = find_target(target)
    if found.weights is None:
        raise UsageError(f"{target} is a base model: there is nothing to merge; give a run directory or a checkpoint")
    from seegrad.backends.local.export import export_model  # torch

    export_model(found.config.model, found.weights, out, dtype=dtype)
    folder = f"./{out}" if str(out) == BUNDLED else out
    print(f"exported {found.label} to {out}; try it: seegrad eval {folder} --recipe {found.config.name}")


def _name_first(default: str, name: str, overrides: Sequence[str] | None) -> tuple[str, list[str]]:
    """A first word with `=` in it is a setting, not a name: `seegrad doctor data.language=en`."""
    rest = list(overrides or [])
    return (default, [name, *rest]) if "=" in name else (name, rest)


def _model_setting(model: str | None) -> list[str]:
    """`--model` as a setting."""
    return [] if model is None else [f"model.base={json.dumps(model)}"]


def _row(rows: Sequence[Example], split: str, index: int) -> Example:
    if index >= len(rows):
        raise UsageError(f"--index {index}: {split!r} has {len(rows)} rows; give 0 to {len(rows) - 1}")
    return rows[index]
