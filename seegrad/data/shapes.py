"""Drawn pictures of triangles, circles and squares, and three kinds of question about them. No file is needed: picture i of a split is fixed.

    draw_scene ─▶ Scene (shapes in cells of a grid, so that none hides another) ─▶ paint ─▶ PNG
                    └─▶ count: how many? · choice: the same with four options · ground: where is the one …?

Splits are disjoint by construction: a scene belongs to the split that its own hash names (only `ood` holds more than 5 of a kind).
Answers are flat (every count, every letter equally likely), so that guessing without the picture scores at chance: 1/5 for `count`, 1/4 for `choice`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from PIL import Image, ImageDraw

from seegrad.config import DataConfig
from seegrad.errors import DataError, nearest
from seegrad.images import blank
from seegrad.types import Example

Task = Literal["count", "choice", "ground"]
Kind = Literal["triangle", "circle", "square"]

SIZE = 96  # pixels, both sides
KINDS: tuple[Kind, ...] = ("triangle", "circle", "square")
COLORS: dict[Kind, tuple[int, int, int]] = {"triangle": (220, 50, 47), "circle": (38, 99, 210), "square": (60, 160, 60)}
NAMES: dict[str, dict[Kind, str]] = {
    "zh": {"triangle": "三角形", "circle": "圆形", "square": "正方形"},
    "en": {"triangle": "triangle", "circle": "circle", "square": "square"},
}
MAX_COUNT = 5  # of one kind, in every split but `ood`
MAX_COUNT_OOD = 7
SPLIT_SIZES = {"pretrain": 100_000_000, "train": 100_000, "dev": 10_000, "test": 10_000, "ood": 10_000}
_HASHED_SPLITS = ("pretrain", "train", "dev", "test")
LETTERS = "ABCD"

QUESTIONS: dict[Task, dict[str, tuple[str, ...]]] = {
    "count": {
        "zh": ("图中有几个{name}？", "数一数图里的{name}。", "{name}一共有多少个？"),
        "en": ("How many {name}s are in the picture?", "Count the {name}s.", "What is the number of {name}s?"),
    },
    "choice": {
        "zh": ("图中有几个{name}？", "数一数图里的{name}。", "{name}一共有多少个？"),
        "en": ("How many {name}s are in the picture?", "Count the {name}s.", "What is the number of {name}s?"),
    },
    "ground": {
        "zh": ("{name}在哪里？", "框出图里的{name}。"),
        "en": ("Where is the {name}?", "Find the box of the {name}."),
    },
}
INSTRUCTIONS: dict[Task, dict[str, str]] = {
    "count": {"zh": "先说明，再把答案写在\\boxed{}里。", "en": "Explain, then answer in \\boxed{}."},
    "choice": {"zh": "先说明，再把选项写在\\boxed{}里。", "en": "Explain, then put the letter in \\boxed{}."},
    "ground": {"zh": "先说明，再把x1,y1,x2,y2写在\\boxed{}里。", "en": "Explain, then put x1,y1,x2,y2 in \\boxed{}."},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: its kind, its box in pixels (x1, y1, x2, y2; the last pixel is inside), its cell in the grid, its colour."""

    kind: Kind
    box: tuple[int, int, int, int]
    row: int
    column: int
    color: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture before it is painted. `grid` is the number of rows and columns of cells; `asked` the kind that the question is about."""

    grid: int
    asked: Kind
    shapes: tuple[Shape, ...]

    def count(self, kind: Kind) -> int:
        return sum(shape.kind == kind for shape in self.shapes)

    def of(self, kind: Kind) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.shapes if shape.kind == kind)


class Shapes(Sequence[Example]):
    """Examples of one task and split, drawn when they are asked for."""

    def __init__(self, task: Task, split: str, data: DataConfig, seed: int = 0) -> None:
        if split not in SPLIT_SIZES:
            raise DataError(f"{task} has no split {split!r}{nearest(split, SPLIT_SIZES)}")
        self.task, self.split, self.data, self.seed = task, split, data, seed

    def __len__(self) -> int:
        return SPLIT_SIZES[self.split]

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.task}/{self.split} has {len(self)} examples, asked for index {index}")
        return make_example(self.task, self.split, index % len(self), self.data, self.seed)


def count(split: str, data: DataConfig, seed: int = 0) -> Shapes:
    """ "How many circles are in the picture?"; the answer is a number from 1 to 5 (1 to 7 in `ood`)."""
    return Shapes("count", split, data, seed)


def choice(split: str, data: DataConfig, seed: int = 0) -> Shapes:
    """The counting question with four options A to D; the answer is the letter, each equally likely."""
    return Shapes("choice", split, data, seed)


def ground(split: str, data: DataConfig, seed: int = 0) -> Shapes:
    """ "Where is the circle?"; the answer is the box `x1,y1,x2,y2` in pixels of the only shape of that kind."""
    return Shapes("ground", split, data, seed)


def make_example(task: Task, split: str, index: int, data: DataConfig, seed: int = 0) -> Example:
    """Example `index` of a split: the same for the same (task, split, seed, index), whatever else was drawn before."""
    rng = np.random.default_rng([list(QUESTIONS).index(task), list(SPLIT_SIZES).index(split), seed, index])
    scene = draw_scene(task, split, rng)
    language = data.language if data.language != "both" else ("zh", "en")[int(rng.integers(2))]
    phrasing = int(rng.integers(len(QUESTIONS[task][language])))
    options = shuffled_options(scene.count(scene.asked), _limit(split), rng) if task == "choice" else ()
    picture = to_png(paint(scene))
    return Example(
        id=f"{task}-{split}-{seed}-{index}",
        question=ask(task, language, phrasing, scene.asked, options),
        answer=_answer(task, scene, options),
        images=(blank(picture) if data.blank_images else picture,),
        choices=options,
        meta={
            "task": task,
            "language": language,
            "phrasing": phrasing,
            "kind": scene.asked,
            "counts": {kind: scene.count(kind) for kind in KINDS},
            "boxes": [[shape.kind, *shape.box] for shape in scene.shapes],
        },
    )


def ask(task: Task, language: str, phrasing: int, kind: Kind, options: Sequence[str] = ()) -> str:
    """The question as the model reads it: question, options when there are any, how to answer."""
    lines = [QUESTIONS[task][language][phrasing].format(name=NAMES[language][kind])]
    lines += [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([*lines, INSTRUCTIONS[task][language]])


def draw_scene(task: Task, split: str, rng: np.random.Generator) -> Scene:
    """Draw until the scene's own hash names `split`; an `ood` scene has 6 or 7 of at least one kind."""
    while True:
        scene = _draw_ground(split, rng) if task == "ground" else _draw_counting(split, rng)
        if split == "ood" or _HASHED_SPLITS[_scene_hash(scene) % len(_HASHED_SPLITS)] == split:
            return scene


def paint(scene: Scene, scale: int = 3) -> Image.Image:
    """The scene as an RGB picture of SIZE × SIZE pixels, smoothed by drawing it `scale` times larger."""
    picture = Image.new("RGB", (SIZE * scale, SIZE * scale), "white")
    draw = ImageDraw.Draw(picture)
    for shape in scene.shapes:
        _PAINTERS[shape.kind](draw, tuple(value * scale for value in (*shape.box[:2], shape.box[2] + 1, shape.box[3] + 1)), shape.color)
    return picture.reduce(scale)


def to_png(picture: Image.Image) -> bytes:
    """PNG bytes, fast and deterministic."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _draw_counting(split: str, rng: np.random.Generator) -> Scene:
    asked = KINDS[int(rng.integers(3))]
    counts = {kind: int(rng.integers(1, _limit(split) + 1)) for kind in KINDS}
    if split == "ood" and max(counts.values()) <= MAX_COUNT:
        others = [kind for kind in KINDS if kind != asked]
        counts[others[int(rng.integers(2))]] = int(rng.integers(MAX_COUNT + 1, MAX_COUNT_OOD + 1))
    return Scene(6, asked, _place([kind for kind in KINDS for _ in range(counts[kind])], 6, (8, 13), rng))


def _draw_ground(split: str, rng: np.random.Generator) -> Scene:
    asked = KINDS[int(rng.integers(3))]
    low, high = (MAX_COUNT + 1, MAX_COUNT_OOD) if split == "ood" else (1, 3)
    others = [kind for kind in KINDS if kind != asked for _ in range(int(rng.integers(low, high + 1)))]
    return Scene(4, asked, _place([asked, *others], 4, (10, 20), rng))


def _place(kinds: Sequence[Kind], grid: int, sizes: tuple[int, int], rng: np.random.Generator) -> tuple[Shape, ...]:
    """One shape per cell at a random spot inside it, in reading order."""
    cell = SIZE // grid
    cells = rng.permutation(grid * grid)[: len(kinds)]
    order = rng.permutation(len(kinds))
    shapes = []
    for position, which in zip(np.sort(cells), order, strict=True):
        row, column = divmod(int(position), grid)
        size = int(rng.integers(sizes[0], sizes[1] + 1))
        x = column * cell + 1 + int(rng.integers(cell - size - 1))
        y = row * cell + 1 + int(rng.integers(cell - size - 1))
        kind = kinds[int(which)]
        red, green, blue = (int(np.clip(value + rng.integers(-25, 26), 0, 255)) for value in COLORS[kind])
        shapes.append(Shape(kind, (x, y, x + size - 1, y + size - 1), row, column, (red, green, blue)))
    return tuple(shapes)


def _scene_hash(scene: Scene) -> int:
    facts = repr([(shape.kind, shape.box, shape.color) for shape in scene.shapes])
    return int.from_bytes(hashlib.sha256(facts.encode()).digest()[:8], "big")


def shuffled_options(answer: int, limit: int, rng: np.random.Generator) -> tuple[str, ...]:
    """The answer and three other numbers from 1 to `limit`, in random order."""
    wrong = rng.permutation([value for value in range(1, limit + 1) if value != answer])[:3]
    return tuple(str(value) for value in rng.permutation([answer, *wrong]))


def _limit(split: str) -> int:
    """Most of one kind in a counting picture of the split."""
    return MAX_COUNT_OOD if split == "ood" else MAX_COUNT


def _answer(task: Task, scene: Scene, options: Sequence[str]) -> str:
    number = str(scene.count(scene.asked))
    if task == "choice":
        return LETTERS[list(options).index(number)]
    if task == "ground":
        return ",".join(str(value) for value in scene.of(scene.asked)[0].box)
    return number


_Box = tuple[int, ...]
_Painter = Callable[[ImageDraw.ImageDraw, _Box, tuple[int, int, int]], None]


def _triangle(draw: ImageDraw.ImageDraw, box: _Box, color: tuple[int, int, int]) -> None:
    draw.polygon([((box[0] + box[2]) // 2, box[1]), (box[2] - 1, box[3] - 1), (box[0], box[3] - 1)], fill=color)


def _circle(draw: ImageDraw.ImageDraw, box: _Box, color: tuple[int, int, int]) -> None:
    draw.ellipse((box[0], box[1], box[2] - 1, box[3] - 1), fill=color)


def _square(draw: ImageDraw.ImageDraw, box: _Box, color: tuple[int, int, int]) -> None:
    draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=color)


_PAINTERS: dict[Kind, _Painter] = {"triangle": _triangle, "circle": _circle, "square": _square}
