"""Units at the end of an answer, Chinese and ASCII: what they measure, and how large they are in the base unit of that.

Lengths, masses, times, volumes, money and so on convert exactly among themselves, so that 100 cm is 1 m, and 8 m is not 8 cm. A unit that is missing
on one side is for the grader to judge; a unit that is not in the table is not read at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Dimension = tuple[tuple[str, int], ...]  # base units with their exponents, sorted: (("m", 2),) is an area


@dataclass(frozen=True, slots=True)
class Unit:
    """What is measured, and one of this unit in base units.

    >>> split("8平方厘米")
    ('8', Unit(dimension=(('m', 2),), scale=Fraction(1, 10000)))
    """

    dimension: Dimension
    scale: Fraction = Fraction(1)

    def power(self, exponent: int) -> Unit:
        return Unit(tuple((base, times * exponent) for base, times in self.dimension), self.scale**exponent)

    def times(self, other: Unit) -> Unit:
        total = dict(self.dimension)
        for base, exponent in other.dimension:
            total[base] = total.get(base, 0) + exponent
        return Unit(tuple(sorted((base, exponent) for base, exponent in total.items() if exponent)), self.scale * other.scale)

    def agrees(self, other: Unit) -> bool:
        """Whether the two measure the same kind of thing; `units` and `square units` agree with lengths and areas of any kind."""
        if self.dimension == other.dimension:
            return True
        return any(
            len(one.dimension) == len(another.dimension) == 1
            and (one.dimension[0][0], another.dimension[0][0]) == ("unit", "m")
            and one.dimension[0][1] == another.dimension[0][1]
            for one, another in ((self, other), (other, self))
        )


DEGREE = Unit((("°", 1),))

# base unit, then how many base units each line's unit has and what it is called; a single ASCII letter may also be a variable
_TABLE: dict[str, dict[str, str]] = {
    "m": {
        "1": "m 米 公尺 meter meters metre metres",
        "1/10": "dm 分米 decimeter decimeters",
        "1/100": "cm CM ㎝ 厘米 公分 centimeter centimeters centimetre centimetres",
        "1/1000": "mm MM ㎜ 毫米 millimeter millimeters millimetre millimetres",
        "1/1000000": "μm um 微米",
        "1000": "km KM Km ㎞ 千米 公里 kilometer kilometers kilometre kilometres",
        "1852": "海里 浬 nmi nautical_mile nautical_miles",
        "500": "里",
        "127/5000": "in inch inches 英寸",
        "381/1250": "ft foot feet 英尺",
        "1143/1250": "yd yard yards",
        "201168/125": "mi mile miles 英里",
    },
    "kg": {
        "1": "kg KG Kg 千克 公斤 kilogram kilograms",
        "1/2": "斤",
        "1/1000": "g 克 gram grams",
        "1/1000000": "mg 毫克 milligram milligrams",
        "1000": "吨 ton tons tonne tonnes",
        "45359237/100000000": "lb lbs pound pounds",
    },
    "s": {
        "1": "s sec second seconds 秒 秒钟",
        "60": "min mins minute minutes 分 分钟",
        "3600": "h hr hrs hour hours 时 小时 个小时",
        "86400": "day days 天 日",
        "604800": "week weeks 周 星期",
    },
    "month": {"1": "month months 月 个月", "12": "year years 年", "3": "季度"},
    "岁": {"1": "岁 周岁"},
    "°": {"1": "度 deg degree degrees"},
    "rad": {"1": "rad radian radians 弧度"},
    "°C": {"1": "°C 摄氏度 ℃"},
    "°F": {"1": "°F 华氏度 ℉"},
    "元": {"1": "元 块钱 yuan ¥ ￥ RMB", "1/10": "角", "10000": "万元"},
    "dollar": {"1": "dollar dollars 美元 USD ¤", "1/100": "cent cents ¢"},
    "euro": {"1": "euro euros 欧元 €"},
    "pound sterling": {"1": "£ 英镑"},
    "unit": {"1": "unit units 单位 个单位 单位长度 个单位长度"},
    "个": {"1": "个 只 条 块 棵 次 本 页 名 张 支 辆 件 根 台 间 位 种 组 对 人 户 盏 枚 颗 段 层 步 圈 幅 枝 把 箱 袋 瓶 盒 道 艘 盆 朵"},
}
_AREAS: dict[str, int | Fraction] = {
    "公顷": 10_000,
    "hectare": 10_000,
    "hectares": 10_000,
    "亩": Fraction(2000, 3),
    "㎡": 1,
    "㎠": Fraction(1, 10**4),
    "㎢": 10**6,
}
_VOLUMES = {Fraction(1, 1000): "L 升 liter liters litre litres", Fraction(1, 10**6): "mL ml 毫升 milliliter milliliters cc ㎝³"}
_SQUARE, _CUBIC = ("平方", "square", "sq.", "sq"), ("立方", "cubic", "cu.", "cu")
_SINGLE_LETTERS = "msghL"


def _units() -> Mapping[str, Unit]:
    found = {
        name.replace("_", " "): Unit(((base, 1),), Fraction(scale))
        for base, line in _TABLE.items()
        for scale, names in line.items()
        for name in names.split()
    }
    found |= {name: Unit((("m", 2),), Fraction(scale)) for name, scale in _AREAS.items()}
    return found | {name: Unit((("m", 3),), scale) for scale, names in _VOLUMES.items() for name in names.split()}


UNITS = _units()


def _either(names: tuple[str, ...]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


_NAME = rf"(?:(?:{_either(_SQUARE)}|{_either(_CUBIC)})\s*)?(?:{_either(tuple(UNITS))})"
_POWER = r"\s*(?:\^\s*(?:\{\s*[23]\s*\}|[23])|[23])?"
_ONE = re.compile(rf"({_either(_SQUARE)}|{_either(_CUBIC)})?\s*({_either(tuple(UNITS))})\s*[\^{{\s]*([23])?[\s}}]*")
_SEPARATOR = r"\s*(?:/|每|\bper\b)\s*"
# A unit starts neither inside a word nor inside a command.
_AT_END = re.compile(rf"(?:(?<![A-Za-z\\])|(?=[^A-Za-z])){_NAME}{_POWER}(?:{_SEPARATOR}{_NAME}{_POWER})*\s*$")
_CURRENCY = re.compile(r"^\s*(-?)\s*([¤¥￥€£])\s*(?=\d)")


def split(text: str, variables: frozenset[str] = frozenset()) -> tuple[str, Unit | None]:
    """The text before the unit at its end, and the unit; (text, None) without one. A single letter among `variables` is no unit.

    A currency sign before a number counts as a unit behind it.
    """
    if found := _CURRENCY.match(text):
        return found[1] + text[found.end() :], UNITS[found[2]]
    found = _AT_END.search(text)
    if found is None or found.start() == 0:
        return text, None
    if found.group().strip() in variables:
        return text, None
    unit: Unit | None = None
    for part in re.split(_SEPARATOR, found.group()):
        one = _unit(part)
        if one is None:
            return text, None
        unit = one if unit is None else unit.times(one.power(-1))
    return text[: found.start()].rstrip(), unit


def _unit(text: str) -> Unit | None:
    found = _ONE.fullmatch(text.strip())
    if found is None:
        return None
    prefix, name, exponent = found.groups()
    unit = UNITS[name]
    if prefix:
        if exponent or len(unit.dimension) != 1 or unit.dimension[0][0] not in ("m", "unit") or unit.dimension[0][1] != 1:
            return None
        return unit.power(2 if prefix in _SQUARE else 3)
    return unit.power(int(exponent)) if exponent else unit


def variables(question: str) -> frozenset[str]:
    """The single letters that name a unit elsewhere, but stand in the question as something else than the unit of a number.

    >>> sorted(variables("若 m+1=3，AB=5 s，求 m"))
    ['m']
    """
    return frozenset(letter for letter in _SINGLE_LETTERS if _as_variable(letter).search(question) is not None)


@lru_cache(maxsize=len(_SINGLE_LETTERS))
def _as_variable(letter: str) -> re.Pattern[str]:
    """The letter by itself and not behind a number, or behind an equals sign or in a sum, as in y=mx."""
    alone = rf"(?<![A-Za-z\\{{/(（])(?<!\d)(?<!\d\s){letter}(?![A-Za-z²³^]|\s*[)）/])"
    return re.compile(rf"{alone}|[=+\-−]\s*{letter}[a-z]?(?![a-z])")
