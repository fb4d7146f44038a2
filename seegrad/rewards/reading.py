"""What an answer states: a quantity, a list, a set, an interval, a ratio, a relation or words; and when two of them are the same answer.

`same` says True only for equal values: a decimal is the exact number that it writes. One tolerance exists, in one direction: a gold answer that is a
decimal of at least three significant digits was rounded by somebody, and an irrational number (√20, 3π/2) that rounds to it is the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from seegrad.rewards import decimals, units
from seegrad.rewards.answers import Named, Quantity, Ratio, Reading, Relation, Several, Words
from seegrad.rewards.expression import evaluate
from seegrad.rewards.latex import MAX_LENGTH, enclosed, plain, split
from seegrad.rewards.numbers import DEGREE, Exact, Unreadable, add, atoms, divide, multiply, rational
from seegrad.rewards.phrases import bare
from seegrad.rewards.ranges import range_of
from seegrad.rewards.units import Unit

ROUNDED_DIGITS = 3  # significant digits from which a decimal gold answer may stand for an irrational number
_DECIMAL = re.compile(r"-?\s*(\d*)\.(\d+)", re.ASCII)
_GROUPED = re.compile(r"[-+]?\s*\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])\s*[^\d,]*", re.ASCII)
_OR = re.compile(r"\s*(?:\bor\b|\band\b|或者|或|和|及)\s*")
_RELATION = re.compile(r"[=≈<>≤≥≠∈]")
_NAME = re.compile(r"(?:\\(?!frac|sqrt)[A-Za-z]+|[^\W\d_]|_\{[^{}]*\}|_\w|[∠△⊙'()\s{}])+")
_NAME_SIGNS = re.compile(r"_\{?\d+\}?|[\s{}∠△]|\\(?:overline|vec|overrightarrow|widehat|hat|bar) ?")
_FLIPPED = {">": "<", "≥": "≤"}
_TUPLE_LABEL = re.compile(r"^[A-Z](?:_\{?\w\}?)?'?\s*(?=\()")
_COMPOUND_NAME = re.compile(
    r"\\(?:sin|cos|tan|cot) *\{? *(?:∠ *[A-Z]{1,3}|[A-Z]|[α-ω]) *\}?|[A-Z]{1,2}(?: *[:/] *[A-Z]{1,2})+|\\frac *\{ *[A-Z]{2} *\} *\{ *[A-Z]{2} *\}"
)
_JOINED = re.compile(r"\s*(?:\band\b|和|及|且|并且)\s*")
_CLOCK = re.compile(r"\d{1,2}:[0-5]\d", re.ASCII)
_NOT_WORDS = re.compile(r"[\s.,;:!?。，；：！？'\"(){}\-]+")
_NO_WORD = re.compile(r"[\d\\^_=≈<>≤≥≠∈±∓*/+|\[\]⟦⟧α-ω°%~]", re.ASCII)
_YES_NO = {"yes", "no"}


def read(text: str, variables: frozenset[str] = frozenset()) -> Reading:
    """What a boxed or gold answer states. Single letters among `variables` are no units. Raises Unreadable.

    >>> isinstance(read("x=3"), Named), isinstance(read("(1, 2]"), Several), isinstance(read("相切"), Words)
    (True, True, True)
    """
    found = _read(text, variables)
    if isinstance(found, str):
        raise Unreadable(found)
    return found


def forget() -> None:
    """Nothing that was read is remembered any more (for measurements)."""
    _read.cache_clear()


@lru_cache(maxsize=4096)
def _read(text: str, variables: frozenset[str]) -> Reading | str:
    """A reading, or why there is none."""
    if len(text) > MAX_LENGTH:
        return f"longer than {MAX_LENGTH} characters"
    form = bare(plain(text))
    try:
        return _whole(form, variables)
    except Unreadable as error:
        folded = _NOT_WORDS.sub("", form).casefold()
        if folded and not form.startswith("-") and _NO_WORD.search(folded) is None and (len(folded) > 1 or not folded.isascii()):
            return Words(folded)
        return str(error)


def _whole(form: str, variables: frozenset[str]) -> Reading:
    while form[:1] == "{" and enclosed(form):
        form = form[1:-1].strip()
    if not form:
        raise Unreadable("empty")
    if form.casefold() in _YES_NO:
        return Words(form.casefold())
    if (infinite := _infinite(form)) is not None:
        return infinite

    def part(text: str) -> Reading:
        return _whole(text.strip(), variables)

    if len(joined := _JOINED.split(form)) > 1 and all(_RELATION.search(text) for text in joined):
        together = tuple(part(text) for text in joined)
        if any(isinstance(one, Relation) for one in together):
            return Several("∧", together)
    alternatives = _OR.split(form)
    if len(alternatives) > 1:
        return Several("⟦⟧", tuple(part(text) for text in alternatives))
    if _GROUPED.fullmatch(form):
        return _quantity(form.replace(",", ""), variables)
    listed = split(form, ",，;；")
    if len(listed) > 1:
        return Several("", tuple(part(text) for text in listed))
    if _RELATION.search(form) and (related := split(form, "=≈<>≤≥≠∈")) and len(related) > 1:
        return _relation(form, related, variables)
    if (bracketed := _bracketed(_TUPLE_LABEL.sub("", form), part)) is not None:
        return bracketed
    if ":" in form:
        values = tuple(_quantity(text.strip(), variables) for text in split(form, ":"))
        if len(values) > 1:
            if any(value.unit is not None for value in values):
                raise Unreadable("a ratio with units")
            literal = _CLOCK.fullmatch(form) is not None
            if not literal and not all(value.value.numerator for value in values):
                raise Unreadable("a ratio with zero")
            return Ratio(tuple(value.value for value in values), literal)
    if "±" in form or "∓" in form:
        if form.count("±") + form.count("∓") > 1:
            raise Unreadable("several ±")
        return Several("⟦⟧", (part(_sign(form, "+")), part(_sign(form, "-"))))
    return _quantity(form, variables)


def _sign(form: str, sign: str) -> str:
    return form.replace("±", sign).replace("∓", "-" if sign == "+" else "+")


def _bracketed(form: str, part: Callable[[str], Reading]) -> Several | None:
    """A set, or brackets around a comma: a point, a pair, an interval."""
    if len(form) < 3 or form[0] not in "([⟦" or form[-1] not in ")]⟧":
        return None
    inside = split(form[1:-1], ",，;；")
    if form[0] == "⟦":
        return Several("⟦⟧", tuple(part(text) for text in inside)) if form[-1] == "⟧" else None
    if len(inside) < 2 or form[-1] == "⟧":
        return None
    return Several(form[0] + form[-1], tuple(part(text) for text in inside))


def _infinite(text: str) -> Reading | None:
    return Words(text.lstrip("+").replace(" ", "")) if text.lstrip("+- ") == "∞" else None


def _relation(form: str, parts: list[str], variables: frozenset[str]) -> Reading:
    signs = [character for character in _outside(form) if _RELATION.fullmatch(character)]
    parts = [text.strip() for text in parts]
    if signs[0] in "=≈" and _is_name(parts[0]):
        rest = _chain(signs[1:], parts[1:], variables)
        return Named(_name(parts[0]), rest)
    if not parts[0] and signs[0] == "≈":
        return _chain(signs[1:], parts[1:], variables)
    if signs == ["="] and _is_name(parts[1]) and not _is_name(parts[0]):
        return Named(_name(parts[1]), _whole(parts[0], variables))
    if "≈" in signs or all(sign == "=" for sign in signs):
        try:
            return _chain(signs, parts, variables)
        except Unreadable:
            if "≈" in signs:
                raise
    values = tuple(_quantity(text, variables) for text in parts)
    if all(value.value.fraction() is not None for value in values):
        raise Unreadable("a relation between numbers")
    if signs[0] in _FLIPPED:
        if not all(sign in _FLIPPED for sign in signs):
            raise Unreadable("relations in both directions")
        return Relation(tuple(_FLIPPED[sign] for sign in reversed(signs)), tuple(reversed(values)))
    return Relation(tuple(signs), values)


def _outside(form: str) -> list[str]:
    depth, found = 0, []
    for character in form:
        depth += (character in "([{⟦") - (character in ")]}⟧")
        if depth == 0:
            found.append(character)
    return found


def _chain(signs: list[str], parts: list[str], variables: frozenset[str]) -> Reading:
    """`1/2 = 0.5`, `√2 ≈ 1.41`: the first value, when every later one is equal to it or is it rounded. Raises Unreadable otherwise."""
    first = _whole(parts[0], variables)
    for sign, text in zip(signs, parts[1:], strict=True):
        other = _whole(text, variables)
        if not isinstance(first, Quantity) or not isinstance(other, Quantity) or sign not in "=≈":
            raise Unreadable("a chain of what is no number")
        if decimals.same(first.value, other.value) is not True and not (sign == "≈" and _is_rounded(first.value, other)):
            raise Unreadable("a chain of different values")
        unit = other.unit or first.unit
        first = Quantity(first.value, unit, first.rounded)
    return first


def _name(text: str) -> str:
    name = _NAME_SIGNS.sub("", text)
    return "y" if name == "f(x)" else name


def _is_name(text: str) -> bool:
    if _COMPOUND_NAME.fullmatch(text):
        return True
    if _NAME.fullmatch(text) is None:
        return False
    try:
        value = evaluate(text)
    except Unreadable:
        return True
    return any(name[0] == 2 for name in atoms(value.numerator))


def _quantity(form: str, variables: frozenset[str]) -> Quantity:
    value, unit, text = _expression(form, variables)
    rounded = None
    if found := _DECIMAL.fullmatch(text.rstrip("°").strip()):
        whole, digits = found.groups()
        rounded = (len(digits), len((whole + digits).lstrip("0")))
    return Quantity(value, unit, rounded)


def _expression(form: str, variables: frozenset[str]) -> tuple[Exact, Unit | None, str]:
    """(value, unit, text before the unit); degree signs count as a unit."""
    text, unit = units.split(form, variables)
    try:
        value = evaluate(text)
    except Unreadable:
        if unit is None:
            raise
        text, unit = form, None
        value = evaluate(form)
    plain_value = _without_degrees(value)
    if plain_value is not None:
        if unit is not None:
            raise Unreadable("two units")
        value, unit = plain_value, units.DEGREE
    return value, unit, text


def _without_degrees(value: Exact) -> Exact | None:
    """The value with every degree sign taken off its terms; None when there is none. Raises Unreadable for degrees in a divisor or squared."""
    times = [dict(monomial).get(DEGREE, 0) for monomial in value.numerator]
    if any(dict(monomial).get(DEGREE) for monomial in value.denominator) or not {*times} <= {0, 1}:
        raise Unreadable("degrees in a divisor or squared")
    if not any(times):
        return None
    total = rational(0)
    for monomial, coefficient in value.numerator.items():
        bare = tuple(pair for pair in monomial if pair[0] != DEGREE)
        total = add(total, Exact({bare: coefficient}, {(): Fraction(1)}))
    return divide(total, Exact(value.denominator, {(): Fraction(1)}))


def _is_rounded(value: Exact, shown: Quantity) -> bool:
    """Whether a number, rounded to the digits after the point that a decimal shows, is that decimal."""
    target, number = shown.value.fraction(), decimals.decimal(value)
    if shown.rounded is None or target is None or number is None:
        return False
    return abs(number - Decimal(target.numerator) / Decimal(target.denominator)) < Decimal(5) * Decimal(10) ** -(shown.rounded[0] + 1)


def same(gold: Reading, answer: Reading, tolerance: float = 0.0) -> bool | None:
    """True: the same answer. False: another one. None: undecided (functions whose values agree to forty digits)."""
    if isinstance(gold, Named) and isinstance(answer, Named) and gold.name != answer.name:
        return False
    if isinstance(answer, Named) and (whole := None if isinstance(gold, Named) else range_of(gold)) and whole[0] not in ("", answer.name):
        return False
    gold, answer = (reading.value if isinstance(reading, Named) else reading for reading in (gold, answer))
    match gold, answer:
        case Quantity(), Quantity():
            return _same_quantity(gold, answer, tolerance)
        case Ratio(), Ratio():
            return _same_ratio(gold, answer)
        case (Ratio(parts, False), Quantity(value, None)) | (Quantity(value, None), Ratio(parts, False)) if len(parts) == 2:
            return decimals.same(divide(parts[0], parts[1]), value)
        case Relation(), Relation():
            pairs = list(zip(gold.parts, answer.parts, strict=False))
            if gold.signs != answer.signs:
                return False
            forward = _all(_same_quantity(a, b, tolerance) for a, b in pairs)
            if forward is not True and gold.signs in (("=",), ("≠",)):
                return _all(_same_quantity(a, b, tolerance) for a, b in zip(gold.parts, reversed(answer.parts), strict=True))
            return forward
        case (Relation(), Several()) | (Several(), Relation()) | (Several("∧"), Several()) | (Several(), Several("∧")):
            return _same_range(gold, answer, tolerance)
        case Several(), Several():
            return _same_several(gold, answer, tolerance)
        case Words(), Words():
            return gold.text == answer.text
    return False


def _same_quantity(gold: Quantity, answer: Quantity, tolerance: float) -> bool | None:
    a, b = gold.value, answer.value
    if gold.unit is not None and answer.unit is not None:
        if not gold.unit.agrees(answer.unit):
            return False
        if gold.unit.dimension == answer.unit.dimension and gold.unit.scale != answer.unit.scale:
            factor = rational(answer.unit.scale / gold.unit.scale)
            return decimals.same(a, multiply(b, factor))
    verdict = decimals.same(a, b)
    if verdict is True:
        return True
    if gold.rounded is not None and gold.rounded[1] >= ROUNDED_DIGITS and decimals.irrational(b) and _is_rounded(b, gold):
        return True
    return True if tolerance and _within(a, b, tolerance) else verdict


def _within(gold: Exact, answer: Exact, tolerance: float) -> bool:
    a, b = decimals.decimal(gold), decimals.decimal(answer)
    return a is not None and b is not None and abs(a - b) <= Decimal(tolerance) * abs(a)


def _same_ratio(gold: Ratio, answer: Ratio) -> bool | None:
    if len(gold.parts) != len(answer.parts):
        return False
    if gold.literal or answer.literal:
        return _all(decimals.same(a, b) for a, b in zip(gold.parts, answer.parts, strict=True))
    scale = divide(gold.parts[0], answer.parts[0])
    return _all(decimals.same(a, multiply(b, scale)) for a, b in zip(gold.parts, answer.parts, strict=True))


def _same_several(gold: Several, answer: Several, tolerance: float) -> bool | None:
    if len(gold.parts) != len(answer.parts):
        return False
    named = all(isinstance(part, Named) for part in (*gold.parts, *answer.parts))
    if gold.brackets in ("⟦⟧", "∧") or (named and not gold.brackets):
        if answer.brackets not in (gold.brackets, "⟦⟧" if named else "", ""):
            return False
        left = list(answer.parts)
        for part in gold.parts:
            found = next((other for other in left if same(part, other, tolerance) is True), None)
            if found is None:
                return False
            left.remove(found)
        return True
    if answer.brackets != gold.brackets and {gold.brackets, answer.brackets} != {"", "()"}:
        return False
    return _all(same(a, b, tolerance) for a, b in zip(gold.parts, answer.parts, strict=True))


def _same_range(gold: Reading, answer: Reading, tolerance: float) -> bool | None:
    """Of relations that hold together, or of one and an interval: `x > 1 and x < 5`, `1 < x < 5`, `(1, 5)`."""
    if isinstance(gold, Several) and isinstance(answer, Several) and (verdict := _same_several(gold, answer, tolerance)):
        return verdict
    a, b = range_of(gold), range_of(answer)
    if a is None or b is None or (a[0] and b[0] and a[0] != b[0]):
        return False
    if isinstance(gold, Several) and gold.brackets == "()" and not any(isinstance(part, Words) for part in gold.parts):
        return False  # it may be a point
    return _same_several(a[1], b[1], tolerance)


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """False when one is False, None when one is undecided, else True."""
    found = list(verdicts)
    return False if False in found else None if None in found else True
