"""Words around an answer that do not change it: 答案是12, 面积为24, 点P(3,4), x∈(1,2], ∠1=30°. Other words beside an answer make it unreadable.

The lists are closed on purpose: 不为24, 小于24 and `not 24` have the same shape.
"""

from __future__ import annotations

import re

from seegrad.rewards.units import UNITS

_LEAD = re.compile(r"(?:答案?\s*[:是为]+\s*|(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is\s*:?|:)\s*|[=为]\s*)(?=\S)", re.IGNORECASE)
_NOUNS = "面积|周长|体积|表面积|侧面积|长度|长|宽|高|边长|底边长|半径|直径|距离|度数|大小|角度|弧长|概率|坡度|最大值|最小值|值"
_OF = r"(?:(?:线段|四边形|三角形|角|弦|弧|圆)?[△∠⊙]?\s*[A-Za-z]{0,4}\s*的?\s*)"
_MEASURED = re.compile(rf"({_OF}(?:{_NOUNS}))\s*(?:为|是|等于|=|:)\s*(?=\S)")
_ABOUT = re.compile(r"大?约(?:为|是)?\s*(?=[\d\\])")
_POINT = re.compile(r"(?:点|point)\s*(?=(?:[A-Z]\S{0,5}\s*)?\()|\(\s*x\s*,\s*y\s*\)\s*=\s*(?=\()")
_MEMBER = re.compile(r"([a-z])\s*∈\s*(?=[(\[])")
_SUCH_THAT = re.compile(r"⟦\s*([a-z])\s*[|:](.*\1.*)⟧")
_NUMBERED_ANGLE = re.compile(r"∠\s*([1-9])(?!\d)\s*(?==)")
_LENGTH_OF = re.compile(r"\|\s*([A-Z]{2})\s*\|\s*(?==)")
_UNIT_APART = re.compile(r"(?<=[\d})π])\s*[({]\s*([A-Za-z]+(?:\s*\^\s*\{?\s*[23]\s*\}?)?|[一-鿿]{1,4})\s*[)}](\s*\^\s*\{?\s*[23]\s*\}?)?$")
_ANGLE = re.compile(r"(?<=\d)\s*度\s*(\d+)\s*分(?:\s*(\d+)\s*秒)?$")
_PERCENT = re.compile(r"百分之\s*(\d+(?:\.\d+)?)(?![\d.])")
_RATIO = re.compile(r"(?<=[\d}])\s*比\s*(?=[\d\\])")
_PARALLEL = re.compile(r"(?<=[A-Za-z])\s*//\s*(?=[A-Za-z])")
_CIRCLED = re.compile(r"(?<=[①-⑳])\s*[和与,]\s*(?=[①-⑳])")


def bare(form: str) -> str:
    """A plain form without the words around the answer; a noun that says what the answer measures becomes its name.

    >>> bare("答案是12"), bare("△ABC的面积为24"), bare("不为24"), bare("点P(3,4)"), bare("∠1=30°")
    ('12', '△ABC的面积=24', '不为24', 'P(3,4)', '∠①=30°')
    """
    for pattern in (_LEAD, _POINT):
        if found := pattern.match(form):
            form = form[found.end() :]
    if found := _MEASURED.match(form) or _MEMBER.match(form):
        form = found[1] + "=" + form[found.end() :]
    if found := _ABOUT.match(form):
        form = "≈" + form[found.end() :]
    if found := _SUCH_THAT.fullmatch(form):
        form = found[2].strip()
    form = _NUMBERED_ANGLE.sub(lambda found: "∠" + chr(ord("①") + int(found[1]) - 1), form)
    form = _UNIT_APART.sub(_unit_apart, _LENGTH_OF.sub(r"\1", form))
    form = _ANGLE.sub(lambda found: rf"°+({found[1]}/60+{found[2] or 0}/3600)°", form)
    form = _RATIO.sub(":", _PERCENT.sub(r"\1%", form))
    return _CIRCLED.sub("", _PARALLEL.sub("∥", form))


def _unit_apart(found: re.Match[str]) -> str:
    name = found[1].partition("^")[0].strip()
    return f" {found[1]}{found[2] or ''}" if name in UNITS or name.removeprefix("平方").removeprefix("立方") in UNITS else found[0]
