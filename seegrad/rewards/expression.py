"""Reading the plain form of one expression into an exact value.

    sum      = [sign] product { sign product }
    product  = power { "*" power | "/" power | power }        a factor without a sign before it is never a bare number
    power    = postfix [ "^" exponent ]
    postfix  = primary { "!" | "°" | "%" }
    primary  = number | mixed number | letter | "(" sum ")" | "{" sum "}" | \\frac, \\sqrt, \\sin, \\cos, \\tan, \\cot, \\ln, \\log and what they take

`a/bc` is (a/b)·c. `\\frac12` is one half, and `\\sqrt221` the root of 221. What is ambiguous (`2\\frac{4}{3}`, `x2`) raises Unreadable.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from seegrad.rewards.decimals import cosine, logarithm, sine, tangent
from seegrad.rewards.numbers import DEGREE, EULER, PI, Exact, Unreadable, add, atom, divide, multiply, negate, power, rational, root

MAX_DEPTH = 30
MAX_DIGITS = 4000  # of one number
MAX_SHIFT = 10_000  # of the exponent of a number such as 1e400
MAX_FACTORIAL = 3000

_TOKEN = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+(?![\dA-Za-z]))?|\.\d+)|\\([A-Za-z]+)|([A-Za-zα-ωΔΩ](?:_\{?\w{1,3}\}?)?'*)|(\S)|(\s+)", re.ASCII)
_MIXED = re.compile(r"\s*\\frac\s*(?:\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)\s*(\d)(?!\d))", re.ASCII)
_MIXED_PLAIN = re.compile(r"\s+(\d+)\s*/\s*(\d+)(?![\d.])", re.ASCII)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]?[a-z]{3,}")


def _cotangent(angle: Exact) -> Exact:
    return divide(rational(1), tangent(angle))


_CONSTANTS = {"π": PI, "e": EULER}
_FUNCTIONS = {"sin": sine, "cos": cosine, "tan": tangent, "ln": logarithm, "cot": _cotangent}


def evaluate(text: str) -> Exact:
    """The value of a plain form. Raises Unreadable.

    >>> evaluate("\\\\frac{1}{2}+0.25").fraction()
    Fraction(3, 4)
    """
    if _WORD.search(text):
        raise Unreadable("words")
    parser = _Parser(text)
    value = parser.sum()
    if parser.kind:
        raise Unreadable(f"{text[parser.start :]!r} is left over")
    return value


def number(text: str) -> Fraction:
    """An unsigned decimal number with an optional exponent. Raises Unreadable when it is too long."""
    mantissa, _, shift = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(shift) > 6 or abs(int(shift or 0)) > MAX_SHIFT:
        raise Unreadable("a number with too many digits")
    whole, _, decimals = mantissa.partition(".")
    return Fraction(int((whole + decimals) or 0)) * Fraction(10) ** (int(shift or 0) - len(decimals))


class _Parser:
    """One token of lookahead: `kind` is "number", "command", "letter", "sign" or "" at the end; `value` its text; `start` and `end` its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.depth = 0
        self._next()

    def _next(self) -> None:
        while (found := _TOKEN.match(self.text, self.end)) is not None:
            self.start, self.end = found.span()
            if found.lastindex != 5:
                self.kind = ("number", "command", "letter", "sign")[(found.lastindex or 4) - 1]
                self.value = found[found.lastindex or 4]
                return
        self.kind = self.value = ""
        self.start = self.end

    def _jump(self, position: int) -> None:
        self.end = position
        self._next()

    def _take(self, sign: str) -> bool:
        if self.kind == "sign" and self.value == sign:
            self._next()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise Unreadable(f"{sign!r} is missing")

    def sum(self) -> Exact:
        sign = self._sign()
        total = negate(self._product()) if sign < 0 else self._product()
        while self.kind == "sign" and self.value in "+-":
            sign = self._sign()
            product = self._product()
            total = add(total, negate(product) if sign < 0 else product)
        return total

    def _sign(self) -> int:
        """One sign, if there is one."""
        if self._take("-"):
            return -1
        self._take("+")
        return 1

    def _product(self) -> Exact:
        total = self._power()
        while True:
            if self._take("*"):
                sign = self._sign()
                factor = self._power()
                total = multiply(total, negate(factor) if sign < 0 else factor)
            elif self._take("/"):
                total = divide(total, self._power())
            elif self.kind in ("letter", "command") or (self.kind == "sign" and self.value in "({"):
                total = multiply(total, self._power())
            else:
                return total

    def _power(self) -> Exact:
        base = self._postfix()
        if not self._take("^"):
            return base
        return power(base, self._exponent())

    def _exponent(self) -> Exact:
        sign = self._sign()
        if self.kind == "number":
            exponent = rational(number(self.value))
            self._next()
        else:
            exponent = self._primary()
        return negate(exponent) if sign < 0 else exponent

    def _postfix(self) -> Exact:
        value = self._primary()
        while True:
            if self._take("°"):
                value = multiply(value, atom(DEGREE))
            elif self._take("%"):
                value = multiply(value, rational(Fraction(1, 100)))
            elif self._take("!"):
                count = value.fraction()
                if count is None or count.denominator != 1 or not 0 <= count <= MAX_FACTORIAL:
                    raise Unreadable("a factorial of what is no small whole number")
                value = rational(math.factorial(int(count)))
            else:
                return value

    def _primary(self) -> Exact:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        value = self._atom()
        self.depth -= 1
        return value

    def _atom(self) -> Exact:
        kind, text = self.kind, self.value
        if kind == "number":
            return self._number()
        if kind == "letter":
            self._next()
            if text in _CONSTANTS:
                return atom(_CONSTANTS[text])
            return atom((2, text.replace("{", "").replace("}", "")))
        if kind == "command":
            return self._command(text)
        if kind == "sign" and text in "({":
            self._next()
            value = self.sum()
            self._expect(")" if text == "(" else "}")
            return value
        raise Unreadable(f"{text!r} where a value should be")

    def _number(self) -> Exact:
        whole, text = number(self.value), self.value
        mixed = None
        if text.isdigit():
            mixed = _MIXED.match(self.text, self.end) or _MIXED_PLAIN.match(self.text, self.end)
        if mixed is None:
            self._next()
            return rational(whole)
        top, bottom = (number(part) for part in mixed.groups() if part is not None)
        if not 0 < top < bottom:
            raise Unreadable(f"{text}{mixed.group()} is neither a mixed number nor a plain product")
        self._jump(mixed.end())
        return rational(whole + top / bottom)

    def _command(self, name: str) -> Exact:
        self._next()
        if name == "frac":
            top = self._argument()
            return divide(top, self._argument())
        if name == "sqrt":
            return self._root()
        if name in _FUNCTIONS:
            exponent = self._exponent() if self._take("^") else rational(1)
            if exponent.fraction() not in (1, 2, 3):
                raise Unreadable("an exponent that may mean the inverse function")
            return power(_FUNCTIONS[name](self._angle()), exponent)
        if name in ("log", "lg"):
            base = rational(10)
            if self._take("_"):
                base = self._argument()
            return divide(logarithm(self._angle()), logarithm(base))
        raise Unreadable(f"\\{name}")

    def _root(self) -> Exact:
        index = 2
        if self._take("["):
            if self.kind != "number" or not self.value.isdigit() or not 2 <= int(self.value[:3]) <= 20:
                raise Unreadable("a root whose index is not a number from 2 to 20")
            index = int(self.value)
            self._next()
            self._expect("]")
        return root(self._nested(), index)

    def _nested(self) -> Exact:
        """What a root or function without braces takes: one number, letter, group or function."""
        if self.kind != "number":
            return self._primary()
        value = rational(number(self.value))
        self._next()
        return value

    def _argument(self) -> Exact:
        """One argument of `\\frac`: a group, or a single digit, letter or command."""
        if self.kind == "number":
            digits, start = self.value, self.start
            if not digits.isdigit() or len(digits) > 2:
                raise Unreadable("digits after \\frac that can be divided in several ways")
            if len(digits) == 2 and self.text[:start].rstrip().endswith("\\frac"):
                self._jump(start + 1)
                return rational(int(digits[0]))
            if len(digits) == 2:
                raise Unreadable("digits after \\frac that can be divided in several ways")
        return self._nested()

    def _angle(self) -> Exact:
        """The argument of a function: a group, or factors up to the next sign, function or root."""
        sign = self._sign()
        if self.kind == "sign" and self.value in "({":
            value = self._postfix()
            return negate(value) if sign < 0 else value
        value = self._postfix()
        while self.kind == "letter":
            value = multiply(value, self._postfix())
        return negate(value) if sign < 0 else value
