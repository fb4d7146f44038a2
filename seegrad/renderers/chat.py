"""Example → ModelInput through the model's own chat template: text chunk, image chunk, text chunk. `tokenizers` and `jinja2` only.

    question with literals  ──hide──▶  private-use stand-ins  ──template──▶  rendered string
    rendered string  ──split at markers──▶  markers: their ids · placeholders: image chunks · the rest: stand-ins put back, encoded as plain text

Whatever the user writes therefore stays text: only markers that the template itself wrote become marker tokens. For text without markers the
result is what `apply_chat_template(tokenize=True)` gives, with each placeholder token repeated as often as its picture needs.
"""

from __future__ import annotations

import datetime
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer

from seegrad import images
from seegrad.errors import BackendError, DataError
from seegrad.families import folder as model_folders
from seegrad.types import Chunk, Example, ImageChunk, ModelInput, TextChunk

TEMPLATE_REFUSES = "chat template refuses the row"  # why such a row is bad
IMAGE_MARK = "<image>"  # where a picture stands in a question; without one the pictures follow the question


class ChatRenderer:
    """Renders examples for the model in `folder`. Raises BackendError when the folder lacks a usable tokenizer or chat template.

    `placeholder_id` is the id at image positions, `banned_ids` are the markers that a model must not write, `stop_token_ids` end an answer.
    """

    def __init__(self, folder: Path, *, enable_thinking: bool = False, system_prompt: str = "") -> None:
        self.folder = folder
        self.enable_thinking = enable_thinking
        self.system_prompt = system_prompt
        self.family = model_folders.family_of(folder)
        self.placeholder_id, self.banned_ids = model_folders.marker_ids(folder, self.family)
        self._markers = {str(token["content"]): int(token["id"]) for token in model_folders.added_tokens(folder)}
        self._any_marker = re.compile("|".join(re.escape(marker) for marker in sorted(self._markers, key=len, reverse=True)))
        self._processor_config = model_folders.processor_config(folder)
        self._tokenizer, self._text_tokenizer = _tokenizers(folder)
        config = _optional_json(folder / "tokenizer_config.json")
        self._special = {key: token for key, value in config.items() if key.endswith("_token") and (token := _token_text(value))}
        template_source = _template_source(folder, config)
        self._own_characters = frozenset(system_prompt + template_source)
        self._template = _compile(template_source, folder)
        self.stop_token_ids = self._stop_token_ids()

    def render(self, example: Example) -> ModelInput:
        """The model's input for one example, ending where the answer begins.

        Raises DataError naming the example when the number of `<image>` marks is neither 0 nor the number of pictures, when a picture cannot be
        used, or when the template refuses the messages.
        """
        try:
            sizes = [images.size(data) for data in example.images]
            return ModelInput(tuple(self._chunks(example.question, sizes, example.images)))
        except DataError as error:
            raise DataError(f"example {example.id!r}: {error}", reason=error.reason) from error

    def count(self, question: str, sizes: Sequence[tuple[int, int]]) -> int:
        """`len(render(example))` of an example with this question and pictures of these sizes, (width, height) in pixels after cleaning
        (`images.size`): nothing is decoded. Raises DataError as `render` does.
        """
        num_text = sum(len(tokens) for tokens in self._pieces(question, len(sizes)) if tokens is not None)
        return num_text + sum(self._num_image_tokens(size) for size in sizes)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special tokens left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def tokens(self, tokens: Sequence[int]) -> list[str]:
        """Each token on its own as text, special tokens shown; a token that is part of a character shows as U+FFFD."""
        return [str(self._tokenizer.decode([token], skip_special_tokens=False)) for token in tokens]

    def _chunks(self, question: str, sizes: Sequence[tuple[int, int]], pictures: Sequence[bytes]) -> Iterator[Chunk]:
        waiting = zip(sizes, pictures, strict=True)
        for tokens in self._pieces(question, len(pictures)):
            if tokens is None:
                size, data = next(waiting)
                yield ImageChunk(data, "jpeg" if data.startswith(b"\xff\xd8") else "png", self._num_image_tokens(size))
            else:
                yield TextChunk(tuple(tokens))

    def _pieces(self, question: str, num_pictures: int) -> Iterator[list[int] | None]:
        """The prompt as runs of text tokens, and None where a picture stands. No run is empty."""
        hidden = _StandIns(self._any_marker, question, self._own_characters)
        rendered = self._rendered(_content(question, num_pictures, hidden), hidden)
        markers = list(self._any_marker.finditer(rendered))
        num_placed = sum(match.group() == self.family.placeholder for match in markers)
        if num_placed != num_pictures:
            message = f"the chat template of {self.folder} placed {num_placed} of {num_pictures} pictures; it must place every one"
            raise DataError(message, reason=TEMPLATE_REFUSES)
        tokens: list[int] = []
        end = 0
        for match in markers:
            tokens += self._encode(hidden.show(rendered[end : match.start()]))
            end = match.end()
            if match.group() != self.family.placeholder:
                tokens.append(self._markers[match.group()])
                continue
            if tokens:
                yield tokens
            tokens = []
            yield None
        tokens += self._encode(hidden.show(rendered[end:]))
        if tokens:
            yield tokens

    def _rendered(self, content: str | list[dict[str, str]], hidden: _StandIns) -> str:
        messages: list[dict[str, Any]] = [{"role": "system", "content": hidden.hide(self.system_prompt)}] if self.system_prompt else []
        messages.append({"role": "user", "content": content})
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, enable_thinking=self.enable_thinking, **self._special
            )
        except jinja2.TemplateError as error:
            raise DataError(f"the chat template of {self.folder} refuses it: {error}", reason=TEMPLATE_REFUSES) from error

    def _num_image_tokens(self, size: tuple[int, int]) -> int:
        return self.family.num_image_tokens(*size, self._processor_config)

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            message = f"the text has half a character (U+{ord(text[error.start]):04X}); expected valid Unicode"
            raise DataError(message, reason="text with half a character") from None
        return list(self._text_tokenizer.encode(text, add_special_tokens=False).ids)

    def _stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer: the family's end of turn, the tokenizer's eos, those of generation_config.json; in that order, each once."""
        configured = _optional_json(self.folder / "generation_config.json").get("eos_token_id")
        named = [self._markers.get(text) for text in (self.family.end_of_turn, self._special.get("eos_token", ""))]
        listed = configured if isinstance(configured, list) else [configured]
        ids = [int(token) for token in (*named, *listed) if token is not None]
        if not ids:
            raise BackendError(f"{self.folder}: no end-of-turn token; expected {self.family.end_of_turn!r} or an eos_token")
        return tuple(dict.fromkeys(ids))


class _StandIns:
    """Marker literals of the user's text, each replaced by a private-use character that occurs neither in `question` nor among `taken`."""

    def __init__(self, any_marker: re.Pattern[str], question: str, taken: frozenset[str]) -> None:
        self._any_marker = any_marker
        private = map(chr, itertools.chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE)))
        self._free = (character for character in private if character not in taken and character not in question)
        self._by_literal: dict[str, str] = {}

    def hide(self, text: str) -> str:
        return self._any_marker.sub(lambda match: self._stand_in(match.group()), text)

    def show(self, text: str) -> str:
        for literal, character in self._by_literal.items():
            text = text.replace(character, literal)
        return text

    def _stand_in(self, literal: str) -> str:
        if literal not in self._by_literal:
            self._by_literal[literal] = next(self._free)
        return self._by_literal[literal]


def _content(question: str, num_pictures: int, hidden: _StandIns) -> str | list[dict[str, str]]:
    """The user message: plain text without pictures, else text and pictures in order."""
    texts = question.split(IMAGE_MARK)
    num_marks = len(texts) - 1
    if num_marks and num_marks != num_pictures:
        raise DataError(
            f"the question has {num_marks} {IMAGE_MARK} marks but there are {num_pictures} pictures; write one mark per picture, or none",
            reason="wrong number of <image> marks",
        )
    if not num_pictures:
        return hidden.hide(question)
    parts: list[dict[str, str]] = []
    for index, text in enumerate(texts):
        if text:
            parts.append({"type": "text", "text": hidden.hide(text)})
        if index < num_marks:
            parts.append({"type": "image"})
    return parts if num_marks else parts + [{"type": "image"}] * num_pictures


def _tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """(the whole tokenizer, the same without added tokens): the second reads every string as plain text."""
    spec = model_folders.read_json(folder / "tokenizer.json")
    try:
        whole = Tokenizer.from_str(json.dumps(spec))
        plain = Tokenizer.from_str(json.dumps({**spec, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}))
    except Exception as error:  # the library raises bare Exception
        raise BackendError(f"{folder}: tokenizer.json cannot be used: {error}") from error
    for token in model_folders.added_tokens(folder)[len(spec.get("added_tokens") or []) :]:
        added = AddedToken(token["content"], special=bool(token.get("special")), normalized=bool(token.get("normalized")))
        (whole.add_special_tokens if token.get("special") else whole.add_tokens)([added])
    return whole, plain


def _template_source(folder: Path, tokenizer_config: Mapping[str, Any]) -> str:
    """The chat template: chat_template.jinja, else chat_template.json, else tokenizer_config.json (of several, the one named `default`)."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = _optional_json(folder / "chat_template.json").get("chat_template") or tokenizer_config.get("chat_template")
    if isinstance(source, list):
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if not isinstance(source, str):
        raise BackendError(f"{folder}: no chat template; expected chat_template.jinja, or chat_template in tokenizer_config.json")
    return source


def _compile(source: str, folder: Path) -> jinja2.Template:
    """A sandboxed template with the helpers that chat templates may use: tojson (plain Unicode), raise_exception, strftime_now, break, continue."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise BackendError(f"{folder}: the chat template does not parse: {error}") from error


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %} … {% endgeneration %}` marks the assistant's part in some templates; its content is kept as it is."""

    tags = {"generation"}  # noqa: RUF012 (an instance variable in the base class)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _optional_json(path: Path) -> dict[str, Any]:
    return model_folders.read_json(path) if path.is_file() else {}


def _token_text(value: Any) -> str:
    """A token as written in tokenizer_config.json: a string, or an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
