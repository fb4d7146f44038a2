"""Many digits of an exact value, for what cannot be decided by its form; and the functions of angles and logarithms.

Eighty digits are worked out. Two values whose forms differ and whose first forty digits agree are undecided, never equal.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from seegrad.rewards.numbers import (
    DEGREE,
    EULER,
    PI,
    Atom,
    Exact,
    Sum,
    Unreadable,
    add,
    atom,
    atoms,
    difference,
    divide,
    factors,
    from_key,
    function,
    multiply,
    negate,
    rational,
    root,
)

_DIGITS = 80
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328230664709")
_CLOSE = Decimal(10) ** -40
_CONTEXT = Context(prec=_DIGITS, Emax=10**9, Emin=-(10**9))


def same(a: Exact, b: Exact) -> bool | None:
    """True when the values are equal, False when they are not, None when neither the forms nor forty digits decide."""
    rest = difference(a, b)
    if not rest:
        return True
    if all(name[0] < 3 for name in atoms(rest)):  # roots of primes, π and letters: the form is unique
        return False
    numbers = _numbers(rest)
    if numbers is None:
        return None
    with localcontext(_CONTEXT):
        return None if abs(sum(numbers, Decimal(0))) <= _CLOSE * sum(map(abs, numbers), Decimal(0)) else False


def decimal(value: Exact) -> Decimal | None:
    """About eighty digits of a value; None when it depends on letters or is too large for that."""
    numerator, denominator = _numbers(value.numerator), _numbers(value.denominator)
    if numerator is None or denominator is None:
        return None
    with localcontext(_CONTEXT):
        try:
            return sum(numerator, Decimal(0)) / sum(denominator, Decimal(0))
        except ArithmeticError:
            return None


def irrational(value: Exact) -> bool:
    """True for a number that certainly is no fraction: one with roots or π in it, and no letters or functions."""
    return value.fraction() is None and value.denominator == {(): 1} and all(name[0] == 0 or name == PI for name in atoms(value.numerator))


def sine(argument: Exact) -> Exact:
    """sin of an angle; worked out for multiples of 15°, in its first quadrant form for other numbers of degrees."""
    degrees = _degrees(argument)
    if degrees is None:
        return function("sin", argument)
    degrees, sign = degrees % 360, 1
    if degrees >= 180:
        degrees, sign = degrees - 180, -1
    degrees = min(degrees, 180 - degrees)
    value = _special().get(degrees) or function("sin", multiply(rational(degrees), atom(DEGREE)))
    return value if sign > 0 else negate(value)


def cosine(argument: Exact) -> Exact:
    if _degrees(argument) is None:
        return function("cos", argument)
    return sine(add(multiply(rational(90), atom(DEGREE)), negate(_in_degrees(argument))))


def tangent(argument: Exact) -> Exact:
    """Raises Unreadable for 90°."""
    degrees = _degrees(argument)
    if degrees is None:
        return function("tan", argument)
    if degrees % 15 == 0:
        return divide(sine(argument), cosine(argument))
    degrees, sign = degrees % 180, 1
    if degrees > 90:
        degrees, sign = 180 - degrees, -1
    value = function("tan", multiply(rational(degrees), atom(DEGREE)))
    return value if sign > 0 else negate(value)


def logarithm(argument: Exact) -> Exact:
    """ln; that of a rational number as a sum over its prime factors. Raises Unreadable for zero and negative numbers."""
    if (value := argument.fraction()) is None:
        return rational(1) if argument.monomial() == (Fraction(1), ((EULER, Fraction(1)),)) else function("ln", argument)
    if value <= 0:
        raise Unreadable("the logarithm of a number that is not positive")
    total = rational(0)
    for prime, times in factors(value):
        total = add(total, multiply(rational(times), function("ln", rational(prime))))
    return total


def _in_degrees(argument: Exact) -> Exact:
    degrees = _degrees(argument)
    assert degrees is not None, argument
    return multiply(rational(degrees), atom(DEGREE))


def _degrees(argument: Exact) -> Fraction | None:
    """Degrees of an angle that is written with degree signs or as a multiple of π; None for any other."""
    if not argument.numerator:
        return Fraction(0)
    single = argument.monomial()
    if single is None or single[1] not in (((DEGREE, Fraction(1)),), ((PI, Fraction(1)),)):
        return None
    return single[0] * (1 if single[1][0][0] == DEGREE else 180)


@lru_cache(maxsize=1)
def _special() -> dict[Fraction, Exact]:
    two, three, six = (root(rational(number), 2) for number in (2, 3, 6))
    half, quarter = rational(Fraction(1, 2)), rational(Fraction(1, 4))
    values = {
        0: rational(0),
        15: multiply(quarter, add(six, negate(two))),
        30: half,
        45: multiply(half, two),
        60: multiply(half, three),
        75: multiply(quarter, add(six, two)),
        90: rational(1),
    }
    return {Fraction(degrees): value for degrees, value in values.items()}


def _numbers(total: Sum) -> list[Decimal] | None:
    """The terms of a sum as numbers, or None when one of them is none."""
    with localcontext(_CONTEXT):
        try:
            found = []
            for monomial, coefficient in total.items():
                number = Decimal(coefficient.numerator) / Decimal(coefficient.denominator)
                for name, times in monomial:
                    base = _atom(name)
                    if base is None:
                        return None
                    number *= base ** (Decimal(times.numerator) / Decimal(times.denominator))
                found.append(number)
        except ArithmeticError:
            return None
        return found


def _atom(name: Atom) -> Decimal | None:
    if name[0] == 0:
        return Decimal(name[1])
    if name == PI:
        return _PI
    if name == EULER:
        return Decimal(1).exp()
    if name == DEGREE:
        return _PI / 180
    if name[0] == 2:
        return None
    arguments = [decimal(from_key(key)) for key in name[2:]]
    if any(argument is None or argument.adjusted() > 6 for argument in arguments):
        return None
    numbers = [argument for argument in arguments if argument is not None]
    match name[1]:
        case "root":
            return numbers[0] ** (1 / numbers[1]) if numbers[0] > 0 else None
        case "power":
            return numbers[0] ** numbers[1] if numbers[0] > 0 else None
        case "ln":
            return numbers[0].ln() if numbers[0] > 0 else None
        case "sin":
            return _sin(numbers[0])
        case "cos":
            return _sin(_PI / 2 - numbers[0])
        case "tan":
            return _sin(numbers[0]) / _sin(_PI / 2 - numbers[0])
    return None


def _sin(angle: Decimal) -> Decimal:
    angle %= 2 * _PI
    term = total = angle
    for number in range(2, 200, 2):
        term *= -angle * angle / (number * (number + 1))
        total += term
    return total
