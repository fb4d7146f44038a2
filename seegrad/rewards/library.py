"""The last resort: the package math-verify (extra `math`), for expressions that the reader here does not know or cannot decide.

It sees short single expressions only, without words, units, relations, signs such as ± and towers of exponents, so that nothing large is worked out,
and its verdict counts when fifty digits agree as well. It is called without its own time limit, which needs signals and breaks off the main
thread: the worker that the grader runs in has the limit. Without the package nothing is accepted here.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from seegrad.rewards.latex import plain

MAX_LENGTH = 200
_FUNCTIONS = "frac|sqrt|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|lg|exp|binom"
_COMMAND = re.compile(rf"\\(?:{_FUNCTIONS})(?![A-Za-z])")
_ALLOWED = re.compile(r"[A-Za-zα-ωΔΩ0-9\s+\-*/^_(){}\[\]|.]*", re.ASCII)
_LARGE = re.compile(r"\d{21}|\^\s*\{?\s*-?\d{4}|\^\s*\(?\{?[^{}]*\^|[A-Za-z]{4,}", re.ASCII)
_ONLY_HERE = re.compile(r"\\(?:sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|exp|binom)(?![A-Za-z])|\|")
_POINTS = ("0.7361", "1.2897")


def available() -> bool:
    """Whether math-verify is installed."""
    return _package() is not None


def readable(text: str) -> bool:
    """Whether a text has notation that only the package knows, and the package makes a finite expression of it."""
    return _ONLY_HERE.search(text) is not None and same(text, text)


def same(gold: str, answer: str) -> bool:
    """Whether two texts are the same expression; False in every doubt, and without the package."""
    package = _package()
    a, b = _expression(gold), _expression(answer)
    if package is None or a is None or b is None:
        return False
    try:
        return _digits_agree(a, b) and package.verify(a, b, timeout_seconds=None) is True
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):  # what the package raises on odd input
        return False


@lru_cache(maxsize=1)
def _package() -> Any:
    try:
        import math_verify
    except ImportError:
        return None
    for name in ("math_verify.parser", "math_verify.grader"):  # they warn at every call that no time limit is set
        logging.getLogger(name).setLevel(logging.ERROR)
    return math_verify


@lru_cache(maxsize=1024)
def _expression(text: str) -> Any:
    """A sympy expression, or None when the text is none or might be expensive."""
    package, form = _package(), plain(text) if len(text) <= MAX_LENGTH else ""
    if package is None or not form or form.count("{") > 20:
        return None
    bare = _COMMAND.sub(" ", form)
    if _ALLOWED.fullmatch(bare) is None or _LARGE.search(bare) is not None:
        return None
    form = form.replace("π", r"\pi ").replace("*", r"\cdot ")
    try:
        found = package.parse(f"${form}$", [package.LatexExtractionConfig()], "no_fallback", parsing_timeout=None)
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):
        return None
    import sympy

    expressions = [item for item in found if isinstance(item, sympy.Expr)]
    return expressions[0] if len(expressions) == 1 else None


def _digits_agree(a: Any, b: Any) -> bool:
    """Whether fifty digits agree; of expressions with letters at two points."""
    import sympy

    letters = sorted(a.free_symbols | b.free_symbols, key=str)
    for point in _POINTS if letters else _POINTS[:1]:
        values = {letter: sympy.Rational(point) + place for place, letter in enumerate(letters)}
        first, second = (sympy.N(expression.subs(values), 50) for expression in (a, b))
        if not (first.is_number and second.is_number and first.is_finite and second.is_finite):
            return False
        if abs(first - second) > sympy.Float("1e-35") * max(abs(first), abs(second)):
            return False
    return True
