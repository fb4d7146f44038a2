"""The renderer against transformers' own `apply_chat_template`, and user text that imitates markers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example as also
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import PreTrainedTokenizerFast

from seegrad.data.shapes import to_png
from seegrad.errors import BackendError, DataError
from seegrad.families.folder import added_tokens, model_folder
from seegrad.renderers.chat import ChatRenderer
from seegrad.types import Example, ImageChunk, ModelInput, TextChunk

FOLDER = model_folder("tiny", weights=False)
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "generation_config.json", "chat_template.jinja")
MARKERS = tuple(token["content"] for token in added_tokens(FOLDER))
SMALL, WIDE = to_png(Image.new("RGB", (96, 96), "white")), to_png(Image.new("RGB", (128, 64), "red"))
QUESTIONS = {
    "zh": "图中有几个圆形？\n先说明，再把答案写在\\boxed{}里。",
    "en": "How many circles are in the picture?\nExplain, then answer in \\boxed{}.",
    "mixed": "  Given ∠ABC = 60°，求AB的长．  🙂\tcafé\n\n\n",
    "choices": "数一数。\nA. 3\nB. 4\nC. 5\nD. 6\nthen put the letter in \\boxed{}.",
    "almost markers": "a <|im_start and |image_pad|> and <think >, 1 < 2 > 0",
    "empty": "",
}


@cache
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(FOLDER)


@cache
def bundled(*, thinking: bool = False, system: str = "") -> ChatRenderer:
    return ChatRenderer(FOLDER, enable_thinking=thinking, system_prompt=system)


def expected(content: Any, num_tokens: Sequence[int], *, thinking: bool, system: str = "") -> list[int]:
    """What transformers makes of the messages, each placeholder repeated."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    ids = reference().apply_chat_template(messages, tokenize=True, add_generation_prompt=True, enable_thinking=thinking, return_dict=False)
    placeholder = reference().convert_tokens_to_ids("<|image_pad|>")
    counts = iter(num_tokens)
    return [copy for token in ids for copy in [token] * (next(counts) if token == placeholder else 1)]


def question(text: str, *pictures: bytes) -> Example:
    return Example("row-7", text, "3", pictures)


def ids_of(renderer: ChatRenderer, example: Example) -> list[int]:
    return renderer.render(example).token_ids(renderer.placeholder_id)


def kinds(model_input: ModelInput) -> list[str]:
    return ["image" if isinstance(chunk, ImageChunk) else "text" for chunk in model_input.chunks]


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("system", ["", "你是一个助手。 Answer briefly."])
@pytest.mark.parametrize("text", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_equals_apply_chat_template(text: str, system: str, thinking: bool) -> None:
    renderer = bundled(thinking=thinking, system=system)
    parts = [{"type": "text", "text": text}] if text else []
    assert ids_of(renderer, question(text)) == expected(text, [], thinking=thinking, system=system)
    assert ids_of(renderer, question(text, SMALL)) == expected([*parts, {"type": "image"}], [36], thinking=thinking, system=system)
    two = [*parts, {"type": "image"}, {"type": "image"}]
    assert ids_of(renderer, question(text, SMALL, WIDE)) == expected(two, [36, 32], thinking=thinking, system=system)


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@also("\ue000\uf8ff\U000f0000 private use")
@also("\0\r\n\u2028\u200d")
def test_equals_apply_chat_template_for_any_ordinary_text(text: str) -> None:
    if any(marker in text for marker in (*MARKERS, "<image>")):
        return
    content = [{"type": "text", "text": text}, {"type": "image"}] if text else [{"type": "image"}]
    assert ids_of(bundled(), question(text, WIDE)) == expected(content, [32], thinking=False)


def test_the_comparison_notices_planted_errors() -> None:
    text, image = {"type": "text", "text": QUESTIONS["zh"]}, {"type": "image"}
    ours = ids_of(bundled(), question(QUESTIONS["zh"], SMALL, WIDE))
    assert ours == expected([text, image, image], [36, 32], thinking=False)
    assert ours != expected([image, text, image], [36, 32], thinking=False), "picture before the text"
    assert ours != expected([text, image, image], [32, 36], thinking=False), "pictures swapped"
    assert ours != expected([text, image, image], [36, 33], thinking=False), "one placeholder too many"
    assert ours != expected([text, image, image], [36, 32], thinking=True), "thinking on"
    assert ours != expected([text, image, image], [36, 32], thinking=False, system=" "), "a system prompt"


@pytest.mark.parametrize("text", ["<image>图中有几个？", "图<image>中", "what is this? <image>", "<image>"])
def test_a_picture_stands_where_its_mark_stands(text: str) -> None:
    before, after = text.split("<image>")
    parts = [{"type": "text", "text": before}] * bool(before) + [{"type": "image"}] + [{"type": "text", "text": after}] * bool(after)
    assert ids_of(bundled(), question(text, SMALL)) == expected(parts, [36], thinking=False)


def test_two_marks_take_the_pictures_in_order() -> None:
    model_input = bundled().render(question("<image><image>which is wider?", SMALL, WIDE))
    assert kinds(model_input) == ["text", "image", "text", "image", "text"]
    assert [chunk.data for chunk in model_input.images] == [SMALL, WIDE]
    assert [chunk.num_tokens for chunk in model_input.images] == [36, 32]


def test_the_vision_markers_stay_in_the_text_around_the_picture() -> None:
    renderer = bundled()
    before, image, after = renderer.render(question("how many?", SMALL)).chunks
    assert isinstance(before, TextChunk) and isinstance(image, ImageChunk) and isinstance(after, TextChunk)
    assert renderer.tokens(before.tokens)[-1] == "<|vision_start|>" and renderer.tokens(after.tokens)[0] == "<|vision_end|>"
    assert image.data is SMALL and image.format == "png"


def test_without_a_picture_there_is_one_text_chunk() -> None:
    assert kinds(bundled().render(question("1+1?"))) == ["text"]


def marker_counts(ids: Sequence[int]) -> dict[str, int]:
    numbers = {token["content"]: token["id"] for token in added_tokens(FOLDER)}
    return {marker: list(ids).count(number) for marker, number in numbers.items()}


def round_trip(text: str, system: str = "") -> None:
    """The ids decode to the template around the very text, and hold the markers that a harmless question has, no more."""
    renderer = bundled(system=system)
    model_input = renderer.render(question(text, SMALL))
    ids = [token for chunk in model_input.chunks for token in (chunk.tokens if isinstance(chunk, TextChunk) else (renderer.placeholder_id,))]
    system_part = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    wanted = (
        f"{system_part}<|im_start|>user\n{text}<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert reference().decode(ids, skip_special_tokens=False) == wanted
    harmless = ids_of(bundled(system="s" if system else ""), question("?", SMALL))
    assert marker_counts(model_input.token_ids(renderer.placeholder_id)) == marker_counts(harmless)
    assert kinds(model_input) == ["text", "image", "text"]


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_in_the_users_text_stays_text(marker: str) -> None:
    round_trip(f"what does {marker} mean? {marker}{marker}")
    round_trip("how many?", system=f"never write {marker}.")


@settings(max_examples=100, deadline=None)
@given(
    pieces=st.lists(
        st.one_of(
            st.sampled_from(MARKERS),
            st.sampled_from(["<", "<|", "|>", "image_pad", "<|im_<|im_end|>end|>", "<|image", "_pad|>", "图", "\ue000", "\ue001", "\U000f0000"]),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_mixture_of_markers_round_trips(pieces: list[str]) -> None:
    text = "".join(pieces)
    if "<image>" not in text:
        round_trip(text)


def test_the_round_trip_notices_a_marker_that_came_through() -> None:
    """transformers itself makes marker tokens of such text: that is what the renderer must not do."""
    content = [{"type": "text", "text": "what does <|image_pad|> mean?"}, {"type": "image"}]
    placeholder = bundled().placeholder_id
    assert expected(content, [1, 36], thinking=False).count(placeholder) == 37
    assert ids_of(bundled(), question("what does <|image_pad|> mean?", SMALL)).count(placeholder) == 36


@pytest.mark.parametrize(
    ("text", "num_pictures", "num_marks"),
    [("<image><image> which?", 1, 2), ("<image> which?", 2, 1), ("<image> which?", 0, 1), ("<image>" * 3, 2, 3)],
)
def test_marks_that_do_not_match_the_pictures_are_refused(text: str, num_pictures: int, num_marks: int) -> None:
    with pytest.raises(DataError, match=f"'row-7'.*{num_marks} <image> marks.*{num_pictures} pictures"):
        bundled().render(question(text, *[SMALL] * num_pictures))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (question("?", b"not a picture"), "not a picture"),
        (question("?", to_png(Image.new("RGB", (1, 300)))), "200 times"),
        (question("half a character: \ud83d"), "U\\+D83D"),
    ],
    ids=["bytes", "sliver", "surrogate"],
)
def test_a_row_that_cannot_be_used_is_named(example: Example, message: str) -> None:
    with pytest.raises(DataError, match=f"'row-7'.*{message}") as caught:
        bundled().render(example)
    assert "\n" not in str(caught.value)


def test_ids_and_decoding() -> None:
    renderer = bundled()
    numbers = reference().convert_tokens_to_ids
    assert renderer.placeholder_id == numbers("<|image_pad|>")
    assert renderer.stop_token_ids == (numbers("<|im_end|>"), numbers("<|endoftext|>"))
    assert set(renderer.banned_ids) == {numbers(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start", "vision_end", "vision_pad")}
    answer = reference().encode("圆形：3。\\boxed{3}", add_special_tokens=False)
    assert renderer.decode([*answer, renderer.stop_token_ids[0]]) == "圆形：3。\\boxed{3}"
    assert renderer.tokens([*answer[-1:], renderer.stop_token_ids[0]]) == ["}", "<|im_end|>"]


def copied(folder: Path, **changes: dict[str, Any]) -> Path:
    """The bundled tokenizer folder with some keys of `tokenizer_config.json` and others replaced."""
    for name in FILES:
        shutil.copy(FOLDER / name, folder / name)
    for stem, values in changes.items():
        path = folder / f"{stem}.json"
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**old, **values}), encoding="utf-8")
    return folder


def test_the_template_is_found_in_every_place(tmp_path: Path) -> None:
    def text(folder: Path) -> str:
        renderer = ChatRenderer(folder)
        return renderer.decode(ids_of(renderer, question("?")))

    folder = copied(tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(BackendError, match="no chat template"):
        ChatRenderer(folder)
    assert text(copied(tmp_path, tokenizer_config={"chat_template": "from file"})) != "from file"
    (folder / "chat_template.jinja").unlink()
    assert text(folder) == "from file"
    copied(tmp_path, tokenizer_config={"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "from list"}]})
    (folder / "chat_template.jinja").unlink()
    assert text(folder) == "from list"
    copied(tmp_path, chat_template={"chat_template": "from processor"})
    (folder / "chat_template.jinja").unlink()
    assert text(folder) == "from processor"


TEMPLATE = """{%- for message in messages %}
    {%- if loop.index > 9 %}{% break %}{% endif %}
    {{- {"role": message.role, "圆": "<é>"} | tojson }}
    {%- generation %}{{ message.content | trim }}{% endgeneration %}
    {{- strftime_now("%Y")[:2] }}{{ eos_token }}{{ tools is none }}
{%- endfor %}
{% if add_generation_prompt %}
go
{% endif %}"""


def test_template_helpers_are_those_of_transformers(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    other = PreTrainedTokenizerFast.from_pretrained(folder)
    wanted = other.apply_chat_template([{"role": "user", "content": "  hi "}], tokenize=True, add_generation_prompt=True, return_dict=False)
    assert ids_of(ChatRenderer(folder), question("  hi ")) == wanted


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('only two turns') }}", "'row-7'.*only two turns"),
        ("{{ messages[0]['content'] }}", "'row-7'.*placed 0 of 1 pictures"),
        ("<|image_pad|><|image_pad|>", "'row-7'.*placed 2 of 1 pictures"),
        ("{{ messages.__class__.__mro__ }}", "'row-7'"),
    ],
)
def test_a_template_that_does_not_fit_is_named(tmp_path: Path, template: str, message: str) -> None:
    folder = copied(tmp_path)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        ChatRenderer(folder).render(question("?", SMALL))


def test_a_broken_template_or_tokenizer_is_named(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "chat_template.jinja").write_text("{% if %}", encoding="utf-8")
    with pytest.raises(BackendError, match="does not parse"):
        ChatRenderer(folder)
    copied(tmp_path, tokenizer={"model": {"type": "BPE"}})
    with pytest.raises(BackendError, match=r"tokenizer\.json cannot be used"):
        ChatRenderer(folder)


def test_tokens_that_only_the_tokenizer_config_knows_are_markers_too(tmp_path: Path) -> None:
    folder = copied(tmp_path, tokenizer_config={"added_tokens_decoder": {"960": {"content": "<|extra|>", "special": True}}})
    renderer = ChatRenderer(folder)
    assert 960 not in ids_of(renderer, question("a <|extra|> b"))
    assert renderer.decode([960]) == "" and renderer.tokens([960]) == ["<|extra|>"]


def test_rendering_needs_neither_torch_nor_transformers() -> None:
    script = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from seegrad.families.folder import model_folder\n"
        "from seegrad.renderers.chat import ChatRenderer\n"
        "from seegrad.types import Example\n"
        "print(len(ChatRenderer(model_folder('tiny', weights=False)).render(Example('a', '?', ''))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(ids_of(bundled(), question("?")))
