"""LaTeX, Chinese and full-width writings of mathematics brought to one plain form, before anything is read.

The plain form has `\\frac`, `\\sqrt`, functions such as `\\sin`, braces as groups, `*`, `/`, `^`, `°`, `π`, `%`, `±`, `≤`, `⟦` and `⟧` for set
braces, and ASCII digits. Spacing, fonts, dollar signs and `\\left` are gone. `\\text{…}` leaves its words.
"""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 400  # characters of an answer; a longer one is not read

_WIDE = re.compile(r"[\uFF01-\uFFEE\u2102-\u214F\U0001D400-\U0001D7FF\u3000]")
_SUPERSCRIPTS = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_SUPERSCRIPT_FORMS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = re.compile(r"[₀₁₂₃₄₅₆₇₈₉]+")
_SUBSCRIPT_FORMS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_VULGAR = re.compile(r"[¼½¾⅐-⅞]")
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("−﹣－‑", "-"),
        **dict.fromkeys("×∙⋅·•∗＊⨯", "*"),
        **dict.fromkeys("÷⁄∕／", "/"),
        **dict.fromkeys("∶：﹕", ":"),
        **dict.fromkeys("º˚∘", "°"),
        **dict.fromkeys("′’ʹ‘`", "'"),
        **dict.fromkeys("″”“", "''"),
        **dict.fromkeys("⩽≦", "≤"),
        **dict.fromkeys("⩾≧", "≥"),
        **dict.fromkeys("≒≃≅", "≈"),
        **dict.fromkeys("~\u00a0\u2002\u2003\u2009\u200a\u202f", " "),
        **dict.fromkeys("\u200b\u200c\u200d\ufeff\u2061\u2062", ""),
        "∆": "△",
        "∴": None,
        "㎝": "cm",
        "㎜": "mm",
        "㎞": "km",
        "㎡": "m^2",
        "㎠": "cm^2",
        "㎥": "m^3",
        "㎤": "cm^3",
        "℃": "°C",
        "√": r"\sqrt ",
        "∛": r"\sqrt[3]",
        "∜": r"\sqrt[4]",
        "、": ",",
        "【": "[",
        "】": "]",
        "$": None,
    }
)
_GREEK = "alpha beta gamma delta theta lambda mu rho sigma tau omega eta zeta kappa xi psi chi Delta Omega"
_NAMES = {  # what a command stands for, and its names; fonts and boxes leave the group behind them
    "": "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr displaystyle textstyle limits bf rm it mathopen mathclose therefore",
    " ": "quad qquad thinspace enspace space text textbf textit textrm textsf texttt textnormal mathrm mathbf mathit mathsf mathtt mathnormal"
    " operatorname mbox hbox boldsymbol bm boxed fbox ensuremath underline",
    "\\frac": "dfrac tfrac cfrac",
    "*": "times cdot ast cdotp centerdot",
    "/": "div",
    "±": "pm",
    "∓": "mp",
    "<": "lt",
    ">": "gt",
    "≤": "le leq leqslant",
    "≥": "ge geq geqslant",
    "≠": "ne neq",
    "≈": "approx thickapprox approxeq doteq",
    "∈": "in",
    "∞": "infty",
    "∪": "cup",
    "∅": "emptyset varnothing",
    ":": "colon",
    "°": "degree degrees circ textdegree",
    "π": "pi",
    "∠": "angle",
    "△": "triangle bigtriangleup vartriangle",
    "⊙": "odot",
    "'": "prime",
    "|": "lvert rvert vert mid",
    "⟦": "lbrace",
    "⟧": "rbrace",
    "[": "lbrack",
    "]": "rbrack",
    "¤": "dollar textdollar",
    "¥": "yen",
    "∥": "parallel",
    "⊥": "perp",
    **dict(zip("αβγδθλμρστωηζκξψχΔΩ", _GREEK.split(), strict=True)),
    "ε": "epsilon varepsilon",
    "φ": "phi varphi",
}
_COMMANDS = {name: plain for plain, names in _NAMES.items() for name in names.split()}
_FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf|tt|normal)|operatorname|mbox|hbox|boldsymbol|bm|boxed|fbox|ensuremath|underline)\s*\{([^{}\\]*)\}"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_ESCAPED = re.compile(r"\\([^A-Za-z])")
_ESCAPES = {
    "{": "⟦",
    "}": "⟧",
    "%": "%",
    "$": "¤",
    "(": "",
    ")": "",
    "[": "",
    "]": "",
    ",": " ",
    ";": " ",
    ":": " ",
    "!": "",
    " ": " ",
    "\n": " ",
    ">": " ",
}
_ESCAPES |= {"&": "&", "#": "#", "_": "_", "|": "|", "\\": ";"}
_THOUSANDS = re.compile(r"(?<=\d)(?:\\[,!:]|\{,\}|\\,)(?=\d{3}(?!\d))")
_LAYOUT = re.compile(r"\\(?:hspace\*?|hskip|color|textcolor)\s*\{[^{}]*\}")
_NESTED = r"[^{}]*(?:\{[^{}]*\}[^{}]*)*"
_OVER = re.compile(rf"\{{({_NESTED})\\over(?![A-Za-z])({_NESTED})\}}")
_PRIME = re.compile(r"\^\s*(?:\{\s*('[\s']*)\}|('+))")
_CELSIUS = re.compile(r"°\s+([CF])$")
_DEGREE = re.compile(r"\^\s*(?:\{\s*°\s*\}|°)|\^\s*(?:\{\s*[oO]\s*\}|o)\s*$")
_ANGLE = re.compile(r"(\d+)\s*°\s*(\d+)\s*'(?:\s*(\d+)\s*'')?")
_PLAIN_FUNCTION = re.compile(r"(?<![A-Za-z\\])(sin|cos|tan|cot|ln|lg|log|sqrt)(?![a-z])")
_PLAIN_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_PERCENT = re.compile(r"\s*\b(?:percent|per cent)\b")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|dot)\s*\{(\d+)\}")
_SPACES = re.compile(r"\s+")
_ENDING = re.compile(r"[\s.。,，;；、\\]+$")


def plain(text: str) -> str:
    """The plain form of an answer.

    >>> plain("2 \\\\sqrt { 221 }^{\\\\circ}"), plain("８\\\\text{ cm}²"), plain("\\\\dfrac{1}{2}\\\\pi")
    ('2 \\\\sqrt{ 221 }°', '8 cm ^{2}', '\\\\frac{1}{2}π')
    """
    text = _SUPERSCRIPTS.sub(lambda found: "^{" + found.group().translate(_SUPERSCRIPT_FORMS) + "}", text)
    text = _SUBSCRIPTS.sub(lambda found: "_{" + found.group().translate(_SUBSCRIPT_FORMS) + "}", text)
    text = _VULGAR.sub(lambda found: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", found.group()).split("⁄")), text)
    text = text.replace("\\$", "¤")
    if text.count("$") == 1:  # not a pair around mathematics
        text = text.replace("$", "¤")
    text = text.translate(_SIGNS)
    text = _WIDE.sub(lambda found: unicodedata.normalize("NFKC", found.group()), text)
    if text.startswith("–"):
        text = "-" + text[1:]
    if "\\" in text:
        text = _THOUSANDS.sub(",", _LAYOUT.sub(" ", text))
        for _ in range(4):
            shorter = _FONT.sub(r" \1 ", text)
            if shorter == text:
                break
            text = shorter
        text = _OVER.sub(r"\\frac{\1}{\2}", _REPEATING.sub(_repeating, text))
        text = _COMMAND.sub(_command, text)
        text = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[0]), text)
    elif "{,}" in text:
        text = _THOUSANDS.sub(",", text)
    text = _PLAIN_FUNCTION.sub(r"\\\1 ", text)
    text = _PLAIN_PI.sub("π", text)
    text = _PERCENT.sub("%", text).replace("+/-", "±").replace("+-", "±").replace("<=", "≤").replace(">=", "≥")
    text = _DEGREE.sub("°", _PRIME.sub(lambda found: "".join((found[1] or found[2]).split()), text))
    text = _ANGLE.sub(lambda found: rf"({found[1]}+{found[2]}/60+{found[3] or 0}/3600)°", text)
    return _CELSIUS.sub(r"°\1", _SPACES.sub(" ", _ENDING.sub("", text)).strip())


def _command(found: re.Match[str]) -> str:
    name = found[1]
    if name not in _COMMANDS:
        return "\\" + name + ("" if found.string[found.end() : found.end() + 1] in "{[" else " ")
    known = _COMMANDS[name]
    return known + " " if known.startswith("\\") and found.string[found.end() : found.end() + 1] not in "{[" else known


def _repeating(found: re.Match[str]) -> str:
    r"""0.1\overline{6} as the fraction (16 − 1) / 90."""
    whole, start, again = found.groups()
    return rf"\frac{{{int((whole or '0') + start + again) - int((whole or '0') + start)}}}{{{'9' * len(again) + '0' * len(start)}}}"


def split(text: str, separators: str) -> list[str]:
    """The parts of a plain form between separators (each one character) that stand outside all brackets; brackets need not match in kind."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "([{⟦":
            depth += 1
        elif character in ")]}⟧":
            depth -= 1
        elif depth == 0 and character in separators:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return parts


def enclosed(text: str) -> bool:
    """Whether the first character is a bracket that the last one closes."""
    depth = 0
    for position, character in enumerate(text):
        if character in "([{⟦":
            depth += 1
        elif character in ")]}⟧":
            depth -= 1
            if depth == 0:
                return position == len(text) - 1
    return False
