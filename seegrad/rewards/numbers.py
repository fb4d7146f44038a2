"""Exact values: rational multiples of roots, π, letters and functions, their sums, and quotients of sums. Equal means equal, never merely close.

A `Sum` maps a monomial to its coefficient. A monomial is a product of atoms with exponents, for example √6·π = 2^½ · 3^½ · π. Powers of primes are
kept with exponents in [0, 1), the rest goes into the coefficient; different monomials of that kind are linearly independent over the rationals, so
that two such sums are equal only when they are the same mapping. Every size is bounded: what would grow without end raises Unreadable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MAX_BITS = 60_000  # of a numerator or denominator: 3000! fits
MAX_ROOT_BITS = 2000  # of what is under a root
MAX_TERMS = 400  # of a sum
MAX_EXPONENT = 32  # of a sum of several terms

# (0, prime) · (1, "π" or "e") · (2, letter) · (3, function, keys of its arguments, …); the first entry keeps the kinds apart when they are sorted
Atom = tuple[Any, ...]
Monomial = tuple[tuple[Atom, Fraction], ...]
Sum = Mapping[Monomial, Fraction]

PI: Atom = (1, "π")
EULER: Atom = (1, "e")
DEGREE: Atom = (2, "°")
_ONE: Sum = {(): Fraction(1)}
_PRIMES = [number for number in range(2, 10_000) if all(number % divisor for divisor in range(2, math.isqrt(number) + 1))]


class Unreadable(Exception):
    """A text that has no value here: not an expression, ambiguous, undefined or too large."""


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """A quotient of two sums; `denominator` is 1 unless it has several terms.

    >>> add(rational(Fraction(1, 2)), rational(2)).fraction()
    Fraction(5, 2)
    """

    numerator: Sum
    denominator: Sum

    def fraction(self) -> Fraction | None:
        """The value as a rational number, or None when it is not one."""
        if not self.numerator:
            return Fraction(0)
        return self.numerator[()] if self.denominator == _ONE and set(self.numerator) == {()} else None

    def monomial(self) -> tuple[Fraction, Monomial] | None:
        """(coefficient, monomial) of a value with one term, or None."""
        if self.denominator != _ONE or len(self.numerator) != 1:
            return None
        ((monomial, coefficient),) = self.numerator.items()
        return coefficient, monomial

    def key(self) -> tuple[Any, ...]:
        """A hashable, sortable form from which `from_key` makes the value again."""
        return tuple(sorted(self.numerator.items())), tuple(sorted(self.denominator.items()))


def from_key(key: tuple[Any, ...]) -> Exact:
    return Exact(dict(key[0]), dict(key[1]))


def rational(value: Fraction | int) -> Exact:
    return Exact({(): _checked(Fraction(value))} if value else {}, _ONE)


def atom(name: Atom) -> Exact:
    return Exact({((name, Fraction(1)),): Fraction(1)}, _ONE)


def function(name: str, *arguments: Exact) -> Exact:
    """The value of a function that is not worked out: equal to itself, for the same arguments."""
    return atom((3, name, *(argument.key() for argument in arguments)))


def add(a: Exact, b: Exact) -> Exact:
    if a.denominator == b.denominator:
        return _quotient(_add(a.numerator, b.numerator), a.denominator)
    numerator = _add(_multiply(a.numerator, b.denominator), _multiply(b.numerator, a.denominator))
    return _quotient(numerator, _multiply(a.denominator, b.denominator))


def negate(a: Exact) -> Exact:
    return Exact({monomial: -coefficient for monomial, coefficient in a.numerator.items()}, a.denominator)


def multiply(a: Exact, b: Exact) -> Exact:
    return _quotient(_multiply(a.numerator, b.numerator), _multiply(a.denominator, b.denominator))


def divide(a: Exact, b: Exact) -> Exact:
    return _quotient(_multiply(a.numerator, b.denominator), _multiply(a.denominator, b.numerator))


def difference(a: Exact, b: Exact) -> Sum:
    """A sum that is empty exactly when the two quotients are the same, and otherwise a nonzero multiple of what they differ by."""
    return _add(_multiply(a.numerator, b.denominator), _multiply(_negative(b.numerator), a.denominator))


def atoms(total: Sum) -> Iterable[Atom]:
    return (name for monomial in total for name, _ in monomial)


def power(base: Exact, exponent: Exact) -> Exact:
    """base^exponent; what cannot be worked out in bounded size is kept as a function of the two. Raises Unreadable for 0⁰, 1/0 and √(−1)."""
    wanted = exponent.fraction()
    if wanted is None:
        return function("power", base, exponent)
    if not base.numerator:
        if wanted <= 0:
            raise Unreadable("zero to the power of zero or less")
        return base
    if wanted.denominator > 1:
        rooted = _root(base, wanted.denominator)
        return power(rooted, rational(wanted.numerator))
    count = wanted.numerator
    if (single := base.monomial()) is not None:
        coefficient, monomial = single
        if _bits(coefficient) * abs(count) > MAX_BITS:
            return function("power", base, exponent)
        factor, reduced = _reduced((name, times * count) for name, times in monomial)
        return Exact({reduced: _checked(factor * coefficient**count)}, _ONE)
    if abs(count) > MAX_EXPONENT:
        return function("power", base, exponent)
    result = rational(1)
    for _ in range(abs(count)):
        result = multiply(result, base)
    return result if count >= 0 else divide(rational(1), result)


def root(base: Exact, index: int) -> Exact:
    """The real root of an index from 2. Raises Unreadable for an even root of a negative number."""
    return power(base, rational(Fraction(1, index))) if base.numerator else base


def _root(base: Exact, index: int) -> Exact:
    if (single := base.monomial()) is not None:
        coefficient, monomial = single
        sign = 1
        if coefficient < 0:
            if index % 2 == 0:
                raise Unreadable("an even root of a negative number")
            sign, coefficient = -1, -coefficient
        if all(name[0] < 2 for name, _ in monomial):  # primes, π, e: positive
            number = _radical(coefficient, Fraction(1, index))
            factor, reduced = _reduced((name, times / index) for name, times in monomial)
            return multiply(number, Exact({reduced: factor * sign}, _ONE))
    if base.denominator != _ONE:
        return function("root", base, rational(index))
    content = _content(base.numerator)
    plain = Exact({monomial: coefficient / content for monomial, coefficient in base.numerator.items()}, _ONE)
    inner = (_denested(plain) if index == 2 else None) or function("root", plain, rational(index))
    return multiply(_radical(content, Fraction(1, index)), inner)


def _denested(base: Exact) -> Exact | None:
    """√(a + b√c) as √x ± √y where such rational x and y exist: √(4+2√3) = √3 + 1."""
    a = base.numerator.get((), Fraction(0))
    others = [(monomial, coefficient) for monomial, coefficient in base.numerator.items() if monomial]
    if len(others) != 1 or len(base.numerator) != 2 or a <= 0:
        return None
    ((monomial, b),) = others
    if any(name[0] != 0 or times != Fraction(1, 2) for name, times in monomial):
        return None
    inner = b * b * math.prod(name[1] for name, _ in monomial)
    rest = a * a - inner
    if rest < 0 or math.isqrt(rest.numerator) ** 2 != rest.numerator or math.isqrt(rest.denominator) ** 2 != rest.denominator:
        return None
    side = Fraction(math.isqrt(rest.numerator), math.isqrt(rest.denominator))
    first, second = (_radical((a + sign * side) / 2, Fraction(1, 2)) for sign in (1, -1))
    return add(first, second if b > 0 else negate(second))


def _radical(value: Fraction, exponent: Fraction) -> Exact:
    """value^exponent for a positive rational value, as coefficient × powers of primes."""
    if value == 0:
        return rational(0)
    if _bits(value) > MAX_ROOT_BITS:
        raise Unreadable("the root of a number with too many digits")
    factors = [(prime, times * exponent) for prime, times in _factors(value.numerator)]
    factors += [(prime, -times * exponent) for prime, times in _factors(value.denominator)]
    coefficient, monomial = _reduced(((0, prime), times) for prime, times in factors)
    return Exact({monomial: coefficient}, _ONE)


def _factors(number: int) -> list[tuple[int, int]]:
    """Prime powers; what is left after the primes below 10,000 is taken as one factor (equal roots may then look different, never the reverse)."""
    found: list[tuple[int, int]] = []
    for prime in _PRIMES:
        if prime * prime > number:
            break
        times = 0
        while number % prime == 0:
            number //= prime
            times += 1
        if times:
            found.append((prime, times))
    if number > 1:
        for times in (2, 3, 5):
            side = _whole_root(number, times)
            if side**times == number:
                return found + [(factor, times * more) for factor, more in _factors(side)]
        found.append((number, 1))
    return found


def _whole_root(number: int, index: int) -> int:
    """The largest whole number whose power is at most the number."""
    if index == 2:
        return math.isqrt(number)
    low, high = 1, 1 << (number.bit_length() // index + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**index <= number else (low, middle - 1)
    return low


def factors(value: Fraction) -> list[tuple[int, int]]:
    """Prime powers of a positive rational number, those of the denominator with negative exponents."""
    return _factors(value.numerator) + [(prime, -times) for prime, times in _factors(value.denominator)]


def _content(total: Sum) -> Fraction:
    """The positive rational number by which all coefficients can be divided so that they become coprime integers."""
    return Fraction(math.gcd(*(value.numerator for value in total.values())), math.lcm(*(value.denominator for value in total.values())))


def _quotient(numerator: Sum, denominator: Sum) -> Exact:
    """Raises Unreadable for a denominator of zero."""
    if not denominator:
        raise Unreadable("division by zero")
    if len(denominator) == 1:
        ((monomial, coefficient),) = denominator.items()
        if monomial or coefficient != 1:
            factor, inverse = _reduced((name, -times) for name, times in monomial)
            numerator = _multiply(numerator, {inverse: factor / coefficient})
        return Exact(numerator, _ONE)
    leading = denominator[min(denominator)]
    if leading != 1:
        numerator, denominator = ({monomial: value / leading for monomial, value in total.items()} for total in (numerator, denominator))
    return Exact(numerator, denominator)


def _negative(a: Sum) -> Sum:
    return {monomial: -coefficient for monomial, coefficient in a.items()}


def _add(a: Sum, b: Sum) -> Sum:
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, Fraction(0)) + coefficient
    return {monomial: _checked(coefficient) for monomial, coefficient in total.items() if coefficient}


def _multiply(a: Sum, b: Sum) -> Sum:
    if a is _ONE:
        return b
    if b is _ONE:
        return a
    if len(a) * len(b) > MAX_TERMS:
        raise Unreadable("too many terms")
    total: dict[Monomial, Fraction] = {}
    for first, x in a.items():
        for second, y in b.items():
            factor, monomial = _reduced((*first, *second)) if first and second else (Fraction(1), first or second)
            total[monomial] = total.get(monomial, Fraction(0)) + _checked(_checked(x * y) * factor)
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def _reduced(parts: Iterable[tuple[Atom, Fraction]]) -> tuple[Fraction, Monomial]:
    """(coefficient, monomial) of a product: equal atoms joined, whole powers of primes moved into the coefficient."""
    joined: dict[Atom, Fraction] = {}
    for name, times in parts:
        joined[name] = joined.get(name, Fraction(0)) + times
    coefficient = Fraction(1)
    for name, times in joined.items():
        if name[0] == 0 and (whole := math.floor(times)):
            if name[1].bit_length() * abs(whole) > MAX_BITS:
                raise Unreadable("a number with too many digits")
            coefficient *= Fraction(name[1]) ** whole
            joined[name] = times - whole
    return _checked(coefficient), tuple(sorted((name, times) for name, times in joined.items() if times))


def _bits(value: Fraction) -> int:
    if value.denominator == 1 and abs(value.numerator) == 1:
        return 0
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise Unreadable("a number with too many digits")
    return value
