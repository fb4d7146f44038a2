r"""Cells of a table as text: questions (also as chat messages), answers of any type, options.

What a grader gets is text, so numbers are written as a person writes them (`3.0` → `3`), a list as its items with commas, and the wrappers that data
sets put around a whole answer (`<answer> 3 </answer>`, `\boxed{3}`) are taken off.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from seegrad.errors import DataError

MISSING: Any = object()  # the row has no such cell
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
INDEX_COLUMNS = re.compile(r"label|.*(_|^)(idx|index|label)", re.IGNORECASE)  # a number there counts the options from 0, also when it is text
_BLANKS = re.compile(r"^[\s\u200b-\u200f\u2060\ufeff]+|[\s\u200b-\u200f\u2060\ufeff]+$")
_LETTER = re.compile(r"[(（]?\s*([A-Za-z])\s*[)）]?\s*[.．、:：]?")
_TAGGED = re.compile(r"\s*<answer>((?:(?!</?answer>).)*)</answer>\s*", re.DOTALL)
_BOXED = re.compile(r"\s*\$?\s*\\boxed\s*\{(.*)\}\s*\$?\s*", re.DOTALL)


def is_missing(value: Any) -> bool:
    """True for no cell, null, NaN and text without a character that can be seen."""
    return value is MISSING or value is None or (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and not trimmed(value))


def trimmed(text: str) -> str:
    """The text without blanks around it, those of no width too, which copying from web pages leaves behind."""
    return _BLANKS.sub("", text)


def prompt_text(value: Any, column: str) -> tuple[str, list[Any]]:
    """The question in a cell, and for each `<image>` mark in it the picture that chat messages carry there, or None. Picture parts become marks.

    Of messages, system and user texts are joined by an empty line, and a last answer by the assistant is left out. Raises DataError.
    """
    if value is MISSING:
        raise DataError(f"there is no {column!r}", reason="no question")
    if is_missing(value):
        raise DataError(f"{column!r} is empty", reason="empty question")
    value = _chat(value)
    if isinstance(value, str):
        return value, [None] * value.count("<image>")
    if isinstance(value, Sequence) and value and all(isinstance(message, Mapping) for message in value):
        return _messages(value, column)
    raise DataError(f"{column!r} is {type(value).__name__}, expected text or a list of messages", reason="question is not text")


def answer_text(value: Any, column: str, choices: Sequence[str] = ()) -> str:
    """The gold answer as text. With `choices`, a whole number is the position of the right one, from 0, and becomes its letter. Raises DataError."""
    if value is MISSING:
        raise DataError(f"there is no {column!r}", reason="no answer")
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{column!r} is {value}, expected an answer", reason="answer is not a number")
    value = _chat(value)
    if _is_chat(value):
        value = _last_answer(value)
    if is_missing(value):
        raise DataError(f"{column!r} is empty", reason="empty answer")
    index = _index(value, column) if choices else None
    if index is not None:
        if not 0 <= index < len(choices):
            raise DataError(
                f"{column!r} is {index}, but there are {len(choices)} choices, counted from 0; an answer that is a value must be text",
                reason="answer is outside the choices",
            )
        return LETTERS[index]
    text = unwrapped(_plain(value, column))
    if not text:
        raise DataError(f"{column!r} is empty", reason="empty answer")
    letter = _LETTER.fullmatch(text) if choices and text not in choices else None
    if letter is None:
        return text
    if letter[1].upper() in LETTERS[: len(choices)]:
        return letter[1].upper()
    raise DataError(f"{column!r} is {text!r}, but the choices are A to {LETTERS[len(choices) - 1]}", reason="answer is outside the choices")


def _is_chat(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) and ("role" in item or "from" in item) for item in value)


def _chat(value: Any) -> Any:
    """Chat messages that a CSV file or a column of text holds as JSON (or as Python wrote the list); anything else as it is."""
    if not isinstance(value, str) or not re.match(r"\s*\[\s*\{\s*['\"]", value):
        return value
    try:
        messages = _parsed(value)
    except DataError:
        return value
    return messages if _is_chat(messages) else value


def choices_of(value: Any) -> tuple[str, ...]:
    """Options in a cell: a list, JSON (or Python) text of one, or `{"A": …, "B": …}`, in order; none for an empty cell. Raises DataError."""
    if is_missing(value):
        return ()
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, Mapping):
        if {"text", "label"} <= value.keys() and isinstance(value["text"], Sequence):  # parallel lists, as in ARC
            value = value["text"]
        else:
            present = {str(key).strip().upper(): item for key, item in value.items() if item is not None}
            letters = [letter for letter in LETTERS if letter in present]
            if len(letters) != len(present) or letters != list(LETTERS[: len(letters)]):
                raise DataError(f"the choices are named {', '.join(map(str, value))}; expected A, B, C …", reason="choices cannot be read")
            value = [present[letter] for letter in letters]
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) > len(LETTERS):
        raise DataError(f"the choices are {type(value).__name__}, expected a list of up to {len(LETTERS)}", reason="choices cannot be read")
    items = list(value)
    while items and is_missing(items[-1]):  # columns of one length in all rows are filled up with nulls
        items.pop()
    if any(is_missing(item) for item in items):
        raise DataError("one of the choices is empty, and one after it is not", reason="choices cannot be read")
    texts = tuple(_plain(item, "choices") for item in items)
    labels = [re.match(rf"\(?{letter}\s*[.):、．：）]\s*(?=\S)", text) for letter, text in zip(LETTERS, texts, strict=False)]
    if len(texts) > 1 and all(labels):  # they bring their letters along
        return tuple(text[label.end() :] for label, text in zip(labels, texts, strict=True) if label)
    return texts


def with_choices(question: str, choices: Sequence[str]) -> str:
    """The question followed by a line `A. …` for each option, unless it lists them already."""
    if not choices or all(_lists(question, letter, choice) for letter, choice in zip(LETTERS, choices, strict=False)):
        return question
    return "\n".join([question, *(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))])


def unwrapped(text: str) -> str:
    r"""An answer without the wrapper around the whole of it.

    >>> unwrapped("<answer> 3 </answer>"), unwrapped(r"$\boxed{\frac{1}{2}}$"), unwrapped(r"\boxed{1}+\boxed{2}")
    ('3', '\\frac{1}{2}', '\\boxed{1}+\\boxed{2}')
    """
    for pattern in (_TAGGED, _BOXED):
        match = pattern.fullmatch(text)
        if match is not None and _closes_last(match[1]):
            text = match[1]
    return trimmed(text)


def _closes_last(inner: str) -> bool:
    """Whether no bracket of `inner` closes one that is opened before it."""
    depth = 0
    for character in re.sub(r"\\[{}]", "", inner):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return True


def _plain(value: Any, column: str) -> str:
    """A scalar or list of scalars as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataError(f"{column!r} is {value}, expected an answer", reason="answer is not a number")
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:  # Python writes no integer of over 4,300 digits
            raise DataError(f"{column!r} is a number of over 4,300 digits", reason="answer has a wrong type") from None
    if isinstance(value, str):
        return trimmed(value)
    if isinstance(value, list | tuple) and value and all(item is not None and not isinstance(item, list | tuple) for item in value):
        return ",".join(_plain(item, column) for item in value)
    if type(value).__module__ in ("decimal", "datetime", "uuid"):
        return str(value)
    raise DataError(f"{column!r} is {type(value).__name__}, expected text, a number or a list of them", reason="answer has a wrong type")


def _index(value: Any, column: str) -> int | None:
    """The number of an option, when the answer is one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a column of whole numbers with gaps is read as floats
    if isinstance(value, str) and INDEX_COLUMNS.fullmatch(column) and re.fullmatch(r"-?\d{1,4}", value.strip()):
        return int(value)
    return None


def _parsed(text: str) -> Any:
    """JSON, else a Python literal (what `str(list)` wrote). Raises DataError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise DataError(f"the choices {text[:60]!r} are not a list", reason="choices cannot be read") from None


def _lists(question: str, letter: str, choice: str) -> bool:
    """Whether the question has the option after its letter: `A. …`, `(A) …`, `A：…`."""
    return re.search(rf"(?<![A-Za-z]){letter}\s*[.:)、．：）]\s*{re.escape(choice.strip())}(?![0-9A-Za-z]|\.\d)", question) is not None


def _messages(messages: Sequence[Mapping[str, Any]], column: str) -> tuple[str, list[Any]]:
    texts: list[str] = []
    slots: list[Any] = []
    roles = [_role(message) for message in messages]
    if roles and roles[-1] == "assistant":
        messages, roles = messages[:-1], roles[:-1]
    if "user" not in roles:
        raise DataError(f"{column!r} has no message of the user (roles: {', '.join(roles) or 'none'})", reason="no question")
    if any(role not in ("system", "user") for role in roles):
        raise DataError(f"{column!r} is a conversation of several turns ({', '.join(roles)}); one question is expected", reason="several turns")
    for message in messages:
        texts.append(_content(message.get("content", message.get("value")), column, slots))
    return "\n\n".join(text for text in texts if text), slots


def _role(message: Mapping[str, Any]) -> str:
    role = str(message.get("role", message.get("from", "")))
    return {"human": "user", "gpt": "assistant"}.get(role, role)


def _last_answer(messages: Sequence[Mapping[str, Any]]) -> Any:
    """The text of the last message, when it is the assistant's."""
    last = messages[-1]
    content = last.get("content", last.get("value")) if _role(last) == "assistant" else None
    if isinstance(content, list | tuple) and content and all(isinstance(part, Mapping) and _kind(part) == "text" for part in content):
        return "".join(str(part.get("text") or "") for part in content)
    return content


def _content(content: Any, column: str, slots: list[Any]) -> str:
    """The text of one message; `slots` grows by one entry for each `<image>` mark: the picture, or None."""
    parts = [content] if isinstance(content, str) else [] if content is None else content
    if not isinstance(parts, Sequence) or not all(isinstance(part, str | Mapping) for part in parts):
        raise DataError(f"{column!r} has a message of {type(content).__name__}, expected text or a list of parts", reason="question is not text")
    texts = []
    for part in parts:
        kind = "text" if isinstance(part, str) else _kind(part)
        if kind == "text":
            text = part if isinstance(part, str) else str(part.get("text") or "")
            slots.extend([None] * text.count("<image>"))
        elif kind in ("image", "image_url") and isinstance(part, Mapping):
            text = "<image>"
            slots.append(_picture_of(part))
        else:
            raise DataError(f"{column!r} has a message part of type {kind!r}; known: text, image, image_url", reason="unknown message part")
        texts.append(text)
    return "".join(texts)


def _kind(part: Mapping[str, Any]) -> Any:
    """The type of a message part, told by its fields when it does not say."""
    return part.get("type") or next((name for name in ("text", "image", "image_url") if part.get(name) is not None), None)


def _picture_of(part: Mapping[str, Any]) -> Any:
    """The picture inside a message part, or None."""
    picture = next((part[name] for name in ("image", "image_url", "path", "url", "base64") if part.get(name) is not None), None)
    return picture["url"] if isinstance(picture, Mapping) and "url" in picture else picture
