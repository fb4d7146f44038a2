"""The length of a prompt from picture sizes alone is that of the rendered prompt; wrong numbers of marks are told with both counts."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seegrad import images
from seegrad.data.shapes import to_png
from seegrad.errors import DataError
from seegrad.families.folder import added_tokens, model_folder
from seegrad.renderers.chat import ChatRenderer
from seegrad.types import Example

FOLDER = model_folder("tiny", weights=False)
MARKERS = tuple(token["content"] for token in added_tokens(FOLDER))
TEXTS = st.lists(st.one_of(st.sampled_from(MARKERS), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)), max_size=4).map("".join)
SIZES = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 120)), max_size=4)


@cache
def renderer(system: str = "") -> ChatRenderer:
    return ChatRenderer(FOLDER, system_prompt=system)


@cache
def picture(size: tuple[int, int]) -> bytes:
    return to_png(Image.new("RGB", size, "white"))


def rendered_length(question: str, sizes: list[tuple[int, int]], system: str = "") -> int:
    return len(renderer(system).render(Example("a", question, "", tuple(map(picture, sizes)))))


@settings(max_examples=100, deadline=None)
@given(text=TEXTS, sizes=SIZES, system=st.sampled_from(["", "你是一个助手。", "never write <|image_pad|> or <image>"]), marked=st.booleans())
def test_the_count_is_the_length_of_the_prompt(text: str, sizes: list[tuple[int, int]], system: str, marked: bool) -> None:
    plain = text.replace("<image>", "")
    question = "<image>".join([plain] * (len(sizes) + 1)) if marked else plain
    assert renderer(system).count(question, sizes) == rendered_length(question, sizes, system)


def test_the_comparison_notices_planted_errors() -> None:
    sizes, question = [(96, 96), (128, 64)], "a <image> b <image> c"
    right = rendered_length(question, sizes)
    assert renderer().count(question, sizes) == right
    assert renderer().count(question, [(96, 96), (128, 80)]) != right, "another size"
    assert renderer().count("a <image> b <image> cd", sizes) != right, "another text"
    assert renderer("s").count(question, sizes) != right, "another system prompt"
    assert renderer().count(question, [(96, 96)] * 2) != right, "the first picture twice"


def test_a_picture_is_counted_as_the_header_of_the_cleaned_one_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    raw = to_png(Image.new("RGB", (300, 1), "white"))
    thin = images.clean(raw, max_aspect=200)
    assert renderer().count("?", [images.size(raw, max_aspect=200)]) == len(renderer().render(Example("a", "?", "", (thin,))))


@pytest.mark.parametrize(
    ("question", "num_pictures", "num_marks"),
    [
        ("<image><image> which?", 1, 2),
        ("<image> which?", 2, 1),
        ("<image> which?", 0, 1),
        ("what does the word <image> in the page mean? <image>", 1, 2),
        ("Which one?\nA. <image>\nB. <image>\nC. <image>\nD. none", 2, 3),
    ],
    ids=["two marks", "two pictures", "no picture", "the word itself", "marks in the choices"],
)
def test_both_counts_are_named_when_marks_and_pictures_differ(question: str, num_pictures: int, num_marks: int) -> None:
    for attempt in (renderer().count, rendered_length):
        with pytest.raises(DataError, match=f"{num_marks} <image> marks.*{num_pictures} pictures") as caught:
            attempt(question, [(32, 32)] * num_pictures)
        assert caught.value.reason == "wrong number of <image> marks"


@pytest.mark.parametrize("literal", ["<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>", "<|video_pad|>", "<|im_end|>"])
def test_a_marker_written_by_the_user_takes_no_picture(literal: str) -> None:
    question = f"<image>What is {literal}?\nA. {literal}\nB. nothing"
    ids = renderer().render(Example("a", question, "", (picture((96, 96)),))).token_ids(renderer().placeholder_id)
    assert ids.count(renderer().placeholder_id) == 36 and len(ids) == renderer().count(question, [(96, 96)])


@pytest.mark.parametrize(
    ("question", "sizes", "reason"),
    [("?", [(1, 300)], "picture too long and thin"), ("half: \ud83d", [], "text with half a character")],
    ids=["sliver", "surrogate"],
)
def test_a_row_that_cannot_be_used_has_a_reason(question: str, sizes: list[tuple[int, int]], reason: str) -> None:
    for attempt in (renderer().count, rendered_length):
        with pytest.raises(DataError) as caught:
            attempt(question, sizes)
        assert caught.value.reason == reason


def test_a_long_prompt_is_never_cut() -> None:
    question = "圆" * 20_000 + "<image>" + "x" * 100
    model_input = renderer().render(Example("a", question, "", (picture((96, 96)),)))
    assert len(model_input) == renderer().count(question, [(96, 96)]) > 20_000
    assert model_input.images[0].num_tokens == 36
    assert question.split("<image>")[0] in renderer().decode(model_input.token_ids(renderer().placeholder_id))


def test_thousands_of_rows_are_counted_in_seconds() -> None:
    questions = [f"如图，在△ABC中，∠C=90°，AC={number}，BC={number + 1}，求AB的长度。" for number in range(3_500)]
    start = time.process_time()
    lengths = {renderer().count(question, [(300, 200)]) for question in questions}
    assert time.process_time() - start < 30  # about half a second; decoding a picture for each would take minutes
    assert len(lengths) > 1
