"""Gold answers in the forms of the GeoQA test set, right answers to them in several writings, and wrong answers made by changing them.

Everything is made from numbers that are known: a value is (numerator / denominator) · √root · π^pi + plus. Nothing here uses a grader.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

# How many golds of the published test set have each form (754 golds; a gold may have several, here it has one).
FORMS = {"degree": 386, "plain": 151, "unit": 87, "fraction": 66, "root": 60, "chinese": 27, "pi": 17}

# How a gold writes a unit, how LaTeX does, and a different one.
UNITS = {
    "°": (r"^\circ", r"\text{ rad}"),
    "cm": (r"\text{ cm}", r"\text{ m}"),
    "m": (r"\mathrm{m}", r"\mathrm{cm}"),
    "mm": (r"\,\mathrm{mm}", r"\,\mathrm{cm}"),
    "km": (r"\text{ km}", r"\text{ m}"),
    "cm²": (r"\text{ cm}^2", r"\text{ cm}"),
    "cm^{2}": (r"\mathrm{cm}^{2}", r"\mathrm{cm}^{3}"),
    "m^{2}": (r"\text{ m}^{2}", r"\text{ m}"),
    "厘米": (r"\text{ cm}", r"\text{ m}"),
    "米": (r"\text{米}", r"\text{厘米}"),
    "平方厘米": (r"\text{ cm}^2", r"\text{ cm}"),
    "海里": (r"\text{海里}", r"\text{ km}"),
    "小时": (r"\text{ hours}", r"\text{ minutes}"),
    "度": (r"^{\circ}", r"\text{ rad}"),
    "": ("", ""),
}


@dataclass(frozen=True)
class Value:
    """A number and how it is written; `decimals` > 0: numerator / 10^decimals as a decimal."""

    numerator: int
    denominator: int = 1
    root: int = 1
    pi: int = 0
    plus: int = 0
    decimals: int = 0

    def number(self) -> float:
        return self.numerator / self.denominator / 10**self.decimals * math.sqrt(self.root) * math.pi**self.pi + self.plus

    def write(self, *, root: str = r"\sqrt{%s}", pi: str = r"\pi", fraction: str = r"\frac{%s}{%s}") -> str:
        sign = "-" if self.numerator < 0 else ""
        factors = (root % self.root if self.root != 1 else "") + (pi if self.pi else "")
        size = abs(self.numerator)
        if self.decimals:
            digits = str(size).zfill(self.decimals + 1)
            top = f"{digits[: -self.decimals]}.{digits[-self.decimals :]}{factors}"
        else:
            top = factors if size == 1 and factors else f"{size}{factors}"
        body = sign + (top if self.denominator == 1 else fraction % (top, self.denominator))
        return body + (f"{self.plus:+d}" if self.plus else "")


@dataclass(frozen=True)
class Gold:
    form: str
    value: Value
    unit: str

    @property
    def text(self) -> str:
        """As the data set writes it: `20√{2}海里`, `(√{3}+1)小时`, `\\frac{10√{3}}{3}m`."""
        body = self.value.write(root="√{%s}", pi="π")
        return (f"({body})" if self.unit and self.value.plus else body) + self.unit

    def writings(self) -> Iterator[tuple[str, str]]:
        """(name, content of the box) of right answers."""
        body = self.value.write()
        whole = rf"\left({body}\right)" if self.unit and self.value.plus else body
        yield "verbatim", self.text
        yield "LaTeX", whole + UNITS[self.unit][0]
        yield "bare", body
        short = self.value.write(root=r"\sqrt%s" if self.value.root < 10 else r"\sqrt{%s}", fraction=r"\dfrac{%s}{%s}")
        yield "short", "x=" + short
        yield "spaced", body.replace("{", " { ").replace("}", " } ")
        yield "full-width", "".join(chr(ord(letter) + 0xFEE0) if letter in "0123456789-+.=" else letter for letter in self.text)


def golds() -> list[Gold]:
    """794 golds in the published proportions, always the same."""
    draw = random.Random(20)
    return [_gold(form, draw) for form, count in FORMS.items() for _ in range(count)]


def _gold(form: str, draw: random.Random) -> Gold:
    one = draw.randint
    small = one(1, 24)
    square_free = draw.choice((2, 3, 5, 6, 7, 10, 13))
    denominator = draw.choice((2, 3, 4, 5, 7, 8, 9, 13))
    numerator = draw.choice([number for number in range(1, 40) if math.gcd(number, denominator) == 1])
    if form == "degree":
        return Gold(form, draw.choice((Value(one(1, 180)), Value(one(1, 180)), Value(one(1, 36) * 5), Value(one(1, 359) * 5, decimals=1))), "°")
    if form == "plain":
        return Gold(form, draw.choice((Value(one(0, 200)), Value(small), Value(-small), Value(one(1, 999), decimals=draw.choice((1, 2))))), "")
    if form == "fraction":
        return Gold(
            form, draw.choice((Value(numerator, denominator), Value(-numerator, denominator), Value(numerator, denominator, square_free))), ""
        )
    if form == "root":
        return Gold(form, draw.choice((Value(small, 1, square_free), Value(1, 1, square_free), Value(one(1, 3), 1, square_free, 0, one(1, 9)))), "")
    if form == "pi":
        return Gold(
            form,
            draw.choice((Value(small, pi=1), Value(numerator, denominator, pi=1), Value(small, pi=1, plus=-one(1, 9)))),
            draw.choice(("", "cm^{2}")),
        )
    unit = draw.choice(("cm", "m", "mm", "km", "cm²", "cm^{2}", "m^{2}") if form == "unit" else ("厘米", "米", "平方厘米", "海里", "小时", "度"))
    values = (Value(small), Value(numerator, denominator), Value(small, 1, square_free), Value(numerator, denominator, square_free))
    return Gold(form, draw.choice((*values, Value(1, 1, square_free, 0, 1), Value(small, pi=1), Value(one(1, 99), decimals=1))), unit)


def wrong_answers() -> list[tuple[str, str, str]]:
    """(kind, gold, content of the box): 80 golds for each kind of change, each with another value, unit or percent sign; always the same."""
    draw = random.Random(21)
    pool = golds()
    draw.shuffle(pool)
    pairs: list[tuple[str, str, str]] = []
    for kind in ("sign", "unit", "pi", "root", "numerator", "denominator", "percent", "exponent", "shift", "plus"):
        found = [(kind, gold.text, content) for gold in pool if (content := _changed(kind, gold)) is not None]
        pairs += found[:80]
    return pairs


def _changed(kind: str, gold: Gold) -> str | None:
    value = gold.value
    unit = UNITS[gold.unit][0]
    if kind == "percent":
        return gold.value.write() + r"\%" if not gold.unit and not value.plus else None
    if kind == "unit":
        return f"({value.write()})" + UNITS[gold.unit][1] if gold.unit and value.numerator else None
    if kind == "exponent":
        return f"{{({value.write()})^2}}" + unit if abs(value.number() ** 2 - value.number()) > 1e-9 else None
    other = {
        "sign": replace(value, numerator=-value.numerator),
        "pi": replace(value, pi=1 - value.pi),
        "root": replace(value, root=1 if value.root > 1 else 3),
        "numerator": replace(value, numerator=value.numerator + 1),
        "denominator": replace(value, denominator=value.denominator + 1),
        "shift": replace(value, decimals=0 if value.decimals else 1),
        "plus": replace(value, plus=value.plus + 1),
    }[kind]
    if abs(other.number() - value.number()) <= 1e-9 * max(1.0, abs(value.number())):
        return None
    body = other.write()
    return (rf"\left({body}\right)" if other.plus and unit else body) + unit
