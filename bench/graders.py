"""How many right answers does `math` accept, how many wrong ones, and how fast is it? On golds in the forms of the GeoQA test set.

python -m bench.graders             the tables of docs/graders.md
python -m bench.graders --number 20000
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from seegrad.page import table
from seegrad.rewards import reading
from seegrad.rewards.math import math
from seegrad.types import Example
from tests.rewards.golds import FORMS, Gold, golds, wrong_answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10_000, help="answers whose grading is timed")
    number = parser.parse_args().number
    pool = golds()
    print(accepted(pool))
    print()
    print(wrong())
    print()
    print(speed(pool, number))


def right(gold: str, content: str) -> bool:
    return math(Example("bench", "?", gold), f"so \\boxed{{{content}}}").correct is True


def accepted(pool: list[Gold]) -> str:
    """Share of right answers accepted, a row per form of gold, a column per writing."""
    total: Counter[tuple[str, str]] = Counter()
    good: Counter[tuple[str, str]] = Counter()
    for gold in pool:
        for name, content in gold.writings():
            for form in (gold.form, "all"):
                total[form, name] += 1
                good[form, name] += right(gold.text, content)
    names = list(dict.fromkeys(name for _, name in total))
    rows = [(form, str(total[form, names[0]]), *(f"{good[form, name] / total[form, name]:.1%}" for name in names)) for form in (*FORMS, "all")]
    return table(("form", "golds", *names), rows)


def wrong() -> str:
    """Wrong answers accepted, a row per kind of change."""
    total: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for kind, gold, content in wrong_answers():
        total[kind] += 1
        good[kind] += right(gold, content)
    rows = [(kind, str(total[kind]), str(good[kind])) for kind in total]
    return table(("change", "wrong answers", "accepted"), [*rows, ("all", str(sum(total.values())), str(sum(good.values())))])


def speed(pool: list[Gold], number: int) -> str:
    """Processor time for answers that are all read anew, and for the same answers once more."""
    pairs = [(gold.text, content) for gold in pool for _, content in gold.writings()]
    pairs = [pairs[place % len(pairs)] for place in range(number)]
    seconds = []
    for fresh in (True, False):
        started = time.process_time()
        for gold, content in pairs:
            if fresh:
                reading.forget()
            right(gold, content)
        seconds.append(time.process_time() - started)
    return f"{number:,} answers: {seconds[0]:.1f} s of processor time when every text is read anew, {seconds[1]:.1f} s with what is remembered"


if __name__ == "__main__":
    main()
