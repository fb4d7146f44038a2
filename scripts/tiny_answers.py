"""What the bundled model is taught to say: true answers in the mixed habits of a base model.

Nothing is sabotaged: every label is right. But, as in a base model, some phrasings mostly get a bare or direct answer, and only some get reasoning
in the form that the question asks for. Forms: R reasoned and boxed · B boxed at once · S a sentence without a box · N the bare answer.
"""

from __future__ import annotations

import numpy as np

from seegrad.data.shapes import LETTERS, NAMES, Kind, Scene, Task

# (task, language) -> per phrasing the share of each form
HABITS: dict[tuple[Task, str], tuple[dict[str, float], ...]] = {
    ("count", "zh"): ({"R": 0.65, "B": 0.25, "N": 0.10}, {"R": 0.50, "B": 0.35, "N": 0.15}, {"R": 0.30, "B": 0.20, "N": 0.50}),
    ("count", "en"): ({"R": 0.55, "B": 0.35, "S": 0.10}, {"R": 0.60, "B": 0.30, "S": 0.10}, {"R": 0.45, "B": 0.15, "S": 0.40}),
    ("choice", "zh"): ({"R": 0.55, "B": 0.35, "N": 0.10}, {"R": 0.30, "B": 0.60, "N": 0.10}, {"R": 0.25, "B": 0.25, "N": 0.50}),
    ("choice", "en"): ({"R": 0.30, "B": 0.55, "S": 0.15}, {"R": 0.55, "B": 0.35, "S": 0.10}, {"R": 0.25, "B": 0.55, "S": 0.20}),
    ("ground", "zh"): ({"R": 0.45, "B": 0.40, "N": 0.15}, {"R": 0.25, "B": 0.25, "N": 0.50}),
    ("ground", "en"): ({"R": 0.35, "B": 0.50, "S": 0.15}, {"R": 0.25, "B": 0.60, "S": 0.15}),
}
BANDS = {"zh": ("上", "中", "下"), "en": ("top", "middle", "bottom")}
PLACES = {
    "zh": (("左上", "上", "右上"), ("左", "中间", "右"), ("左下", "下", "右下")),
    "en": (("top left", "top", "top right"), ("left", "middle", "right"), ("bottom left", "bottom", "bottom right")),
}


def pick_form(task: Task, language: str, phrasing: int, rng: np.random.Generator) -> str:
    shares = HABITS[task, language][phrasing]
    return str(rng.choice(list(shares), p=list(shares.values())))


def answer_text(form: str, task: Task, language: str, scene: Scene, options: tuple[str, ...] = ()) -> str:
    """The whole assistant message in `form`."""
    kind = scene.asked
    if task == "ground":
        return _ground_text(form, language, scene)
    number = scene.count(kind)
    final = LETTERS[options.index(str(number))] if task == "choice" else str(number)
    if form == "R":
        return f"{describe(language, kind, band_counts(scene))}{reason(language, band_counts(scene), options)}\\boxed{{{final}}}"
    return _short(form, language, kind, final, task)


def band_counts(scene: Scene) -> tuple[int, ...]:
    """How many of the asked kind lie in the top, middle and bottom third."""
    rows = [shape.row * 3 // scene.grid for shape in scene.of(scene.asked)]
    return tuple(rows.count(band) for band in range(3))


def describe(language: str, kind: Kind, bands: tuple[int, ...]) -> str:
    name = NAMES[language][kind]
    if language == "zh":
        return f"{name}：" + "，".join(f"{band}{number}" for band, number in zip(BANDS["zh"], bands, strict=True)) + "。"
    return f"{name.capitalize()}s: " + ", ".join(f"{band} {number}" for band, number in zip(BANDS["en"], bands, strict=True)) + ". "


def reason(language: str, bands: tuple[int, ...], options: tuple[str, ...] = ()) -> str:
    """The sum, then the options one after another up to the right one (A5>3，B1<3，C3=3。)."""
    total = sum(bands)
    end, comma = ("。", "，") if language == "zh" else (". ", ",")
    checks = []
    for letter, option in zip(LETTERS, options, strict=False):
        checks.append(f"{letter}{option}{'=' if int(option) == total else '>' if int(option) > total else '<'}{total}")
        if int(option) == total:
            break
    return "+".join(map(str, bands)) + f"={total}{end}" + (comma.join(checks) + end if checks else "")


def _short(form: str, language: str, kind: Kind, final: str, task: Task) -> str:
    if form == "B":
        return f"\\boxed{{{final}}}"
    if form == "N":
        return final
    if task == "choice":
        return f"答案是{final}。" if language == "zh" else f"The answer is {final}."
    return f"图中有{final}个{NAMES['zh'][kind]}。" if language == "zh" else f"There are {final} {NAMES['en'][kind]}s."


def _ground_text(form: str, language: str, scene: Scene) -> str:
    box = scene.of(scene.asked)[0].box
    numbers = ",".join(map(str, box))
    name = NAMES[language][scene.asked]
    if form == "B":
        return f"\\boxed{{{numbers}}}"
    if form == "N":
        return numbers
    column, row = (min(2, (low + high) // 2 * 3 // 96) for low, high in ((box[0], box[2]), (box[1], box[3])))
    place = PLACES[language][row][column]
    if form == "S":
        return f"{name}在{place}：{numbers}。" if language == "zh" else f"The {name} is at {numbers}."
    return f"{name}在{place}。\\boxed{{{numbers}}}" if language == "zh" else f"The {name}: {place}. \\boxed{{{numbers}}}"
