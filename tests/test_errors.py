"""The error tree: every branch has its own exit code, every message is one line."""

from __future__ import annotations

import re

import pytest

from seegrad import errors
from seegrad.errors import MissingExtra, SeegradError, nearest


def branches() -> list[type[SeegradError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SeegradError) and value is not SeegradError]


def test_exit_codes_are_distinct_and_those_of_the_drawing() -> None:
    codes = {kind.__name__: kind.exit_code for kind in branches()}
    drawn = {}
    for line in str(errors.__doc__).splitlines():
        if found := re.search(r"[├└]── (\w+) ", line):
            drawn[found[1]] = len(drawn) + 2 if "exit" not in line else int(re.search(r"exit (\d+)", line)[1])  # type: ignore[index]
    assert codes == drawn
    assert len(set(codes.values())) == len(codes) and not {0, 1} & set(codes.values())
    assert SeegradError.exit_code == 1


def test_a_missing_extra_names_its_command() -> None:
    message = str(MissingExtra("ray", "cluster", "training on several machines"))
    assert "pip install 'seegrad[cluster]'" in message and "training on several machines" in message and "\n" not in message


@pytest.mark.parametrize(
    ("given", "known", "hint"),
    [
        ("meanstd", ["mean", "mean_std"], "; did you mean 'mean_std'?"),
        ("zzz", ["b", "a"], "; known: a, b"),
        ("zzz", [], ""),
    ],
)
def test_nearest(given: str, known: list[str], hint: str) -> None:
    assert nearest(given, known) == hint
