"""docs/cli.md from `--help`: `python scripts/make_cli_docs.py` writes it, `--check` fails when it is out of date."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
COMMANDS = (
    (),
    ("train",),
    ("eval",),
    ("report",),
    ("reproduce",),
    ("sample",),
    ("doctor",),
    ("data",),
    ("data", "list"),
    ("data", "show"),
    ("data", "prepare"),
    ("list",),
    ("export",),
)
INTRODUCTION = """# The command line

Generated from `--help` by `scripts/make_cli_docs.py`; `make docs` writes it again, and a test compares.

An error that is meant for you is one line on standard error that starts with `error:`; its exit code says where it came from:

{codes}

`--debug`, anywhere on the line, shows the traceback instead.
"""


def page() -> str:
    """The whole page as text."""
    from seegrad import errors

    meanings = {0: "done", 1: "a check of `seegrad doctor` failed, or a defect of Seegrad's own", 130: "interrupted; the run can be continued"}
    for kind in (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.SeegradError)):
        if kind is not errors.SeegradError:
            meanings[kind.exit_code] = f"`{kind.__name__}`: {(kind.__doc__ or '').splitlines()[0]}"
    codes = "\n".join(["| code | meaning |", "|---|---|", *(f"| {code} | {text} |" for code, text in sorted(meanings.items()))])
    sections = [INTRODUCTION.format(codes=codes)]
    for command in COMMANDS:
        words = " ".join(("seegrad", *command))
        sections.append(f"## `{words}`\n\n```text\n{help_text(command)}\n```\n")
    return "\n".join(sections)


def help_text(command: tuple[str, ...]) -> str:
    """What `seegrad COMMAND --help` prints on a terminal of 110 columns."""
    os.environ["COLUMNS"] = "110"
    from seegrad.cli import app

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        app(args=[*command, "--help"], prog_name="seegrad", standalone_mode=False)
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted:
            print("error: docs/cli.md is out of date; write it again with: make docs", file=sys.stderr)
            return 1
        return 0
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
