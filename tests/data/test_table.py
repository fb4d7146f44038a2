"""A table of the user's own: columns, questions, options, answers, pictures of any form, marks, ids; a wrong column stops before a row is read."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from seegrad import images
from seegrad.config import Config, DataConfig
from seegrad.data.cells import answer_text, choices_of, prompt_text, unwrapped, with_choices
from seegrad.data.columns import find_columns
from seegrad.data.files import open_rows
from seegrad.data.rows import load_rows
from seegrad.data.skipping import about_rows
from seegrad.data.table import Raw, Table, table
from seegrad.errors import DataError, UsageError
from seegrad.types import Example, ImageChunk, TextChunk
from seegrad.wiring import Parts
from tests.data.test_files import json_lines, parquet, separated
from tests.fakes import picture

RED, BLUE = picture(1), picture(9)
TEXT = base64.b64encode(RED).decode()


def examples(tmp_path: Path, rows: list[dict[str, Any]], **data: Any) -> Table:
    return table("train", DataConfig.model_validate({"name": "table", "path": str(json_lines(tmp_path / "rows.jsonl", rows)), **data}))


def at(path: Path) -> Table:
    return table("train", DataConfig(name="table", path=str(path)))


def one(tmp_path: Path, row: dict[str, Any], **data: Any) -> Example:
    return examples(tmp_path, [row], **data)[0]


def test_a_plain_row(tmp_path: Path) -> None:
    row = {"id": 7, "problem": "How many?", "image": TEXT, "answer": 3, "level": 2, "tags": ["a"], "none": None}
    assert one(tmp_path, row) == Example("7", "<image>How many?", "3", (images.clean(RED),), (), {"level": 2, "tags": ["a"]})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("question answer", "prompt: question, answer: answer, images: –, choices: –, id: –"),
        ("problem solution image", "prompt: problem, answer: solution, images: image, choices: –, id: –"),
        ("Question Answer Images Options ID", "prompt: Question, answer: Answer, images: Images, choices: Options, id: ID"),
        ("prompt reward_model images", "prompt: prompt, answer: reward_model.ground_truth, images: images, choices: –, id: –"),
        ("question image decoded_image answer pid", "prompt: question, answer: answer, images: decoded_image, choices: –, id: pid"),
        ("question image_2 image_10 image_1 answer", "prompt: question, answer: answer, images: image_1 image_2 image_10, choices: –, id: –"),
        ("text label file_name", "prompt: text, answer: label, images: file_name, choices: –, id: –"),
        ("messages images", "prompt: messages, answer: messages, images: images, choices: –, id: –"),
        ("image image_path question answer", "prompt: question, answer: answer, images: image, choices: –, id: –"),
    ],
)
def test_columns_are_found_by_the_usual_names(tmp_path: Path, columns: str, expected: str) -> None:
    source = open_rows(json_lines(tmp_path / "rows.jsonl", [dict.fromkeys(columns.split(), "x")]))
    assert str(find_columns(source, DataConfig())) == expected


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ("frage answer", {}, r"no column is named like a question \(problem, question.*\); columns: frage, answer; say which: data\.prompt_key=NAME"),
        ("question antwort", {}, r"no column is named like an answer .*; columns: question, antwort; say which: data\.answer_key=NAME"),
        ("question answer", {"prompt_key": "quest"}, r"no column 'quest' \(data\.prompt_key\); did you mean 'question'\?; columns: question, answer"),
        ("question answer", {"answer_key": "xyz"}, r"no column 'xyz' \(data\.answer_key\); columns: answer, question"),
        ("question answer", {"image_keys": ["zz"]}, r"no column 'zz' \(data\.image_keys\); columns: answer, question"),
        ("question answer", {"choices_key": "zz"}, r"\(data\.choices_key\)"),
        ("question answer", {"id_key": "zz"}, r"\(data\.id_key\)"),
        ("question answer image images", {}, r"both 'images' and 'image' could be the pictures; say which: data\.image_keys="),
        ("question choices answer label", {}, r"both 'answer' and 'label' could be the answer; say which: data\.answer_key=label"),
        (
            "question answer image image_2",
            {},
            r"both 'image' and 'image_2' hold pictures; say which, in order: data\.image_keys='\[\"image\", \"image_2\"\]'",
        ),
        ("instruction input output", {}, r"'instruction' and 'input' may be two parts of one question; .* data\.prompt_key=instruction"),
        ("question answer", {"template": "no place"}, r"data\.template 'no place' has no \{prompt\}"),
    ],
)
def test_a_column_that_is_missing_or_unclear_stops_at_once(tmp_path: Path, columns: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        examples(tmp_path, [dict.fromkeys(columns.split(), "x")], **settings)
    assert "rows.jsonl" in str(error.value) or "template" in settings


def test_settings_name_the_columns(tmp_path: Path) -> None:
    row = {"n": "seven", "q": "which?", "question": "not this", "a": "B", "first": TEXT, "second": None, "third": [TEXT], "opts": ["x", "y"]}
    keys = {"prompt_key": "q", "answer_key": "a", "image_keys": ["third", "first", "second"], "choices_key": "opts", "id_key": "n"}
    found = one(tmp_path, row, **keys)
    assert (found.id, found.question, found.answer, found.choices) == ("seven", "<image><image>which?\nA. x\nB. y", "B", ("x", "y"))
    assert len(found.images) == 2 and found.meta == {"question": "not this"}


@pytest.mark.parametrize(
    ("value", "column", "choices", "expected"),
    [
        ("  x ", "answer", (), "x"),
        (3, "answer", (), "3"),
        (-0.5, "answer", (), "-0.5"),
        (3.0, "answer", (), "3"),
        (1e20, "answer", (), "1e+20"),
        (True, "answer", (), "true"),
        ([1, 2.5, 3, 4], "box", (), "1,2.5,3,4"),
        (["x"], "answer", (), "x"),
        ("<answer> 3 </answer>", "solution", (), "3"),
        (r"\boxed{\frac{1}{2}}", "answer", (), r"\frac{1}{2}"),
        (r"$\boxed{60^{\circ}}$", "answer", (), r"60^{\circ}"),
        (r"so \boxed{3}", "answer", (), r"so \boxed{3}"),
        (2, "label", ("a", "b", "c"), "C"),
        (2.0, "label", ("a", "b", "c"), "C"),
        ("2", "label", ("a", "b", "c"), "C"),
        ("0", "answer_index", ("a", "b"), "A"),
        ("2", "answer", ("1", "2"), "2"),
        (1, "answer", ("1", "2"), "B"),
        ("B", "label", ("1", "2"), "B"),
        (True, "answer", ("yes", "no"), "true"),
        ("2", "label", (), "2"),
        ([{"role": "user", "content": "?"}, {"role": "assistant", "content": "<answer>4</answer>"}], "messages", (), "4"),
        ([{"from": "human", "value": "?"}, {"from": "gpt", "value": "four"}], "conversations", (), "four"),
    ],
)
def test_answers_of_any_type(value: Any, column: str, choices: tuple[str, ...], expected: str) -> None:
    assert answer_text(value, column, choices) == expected


def test_an_answer_of_many_digits_is_a_bad_row() -> None:
    with pytest.raises(DataError, match="over 4,300 digits") as error:
        answer_text(10**5000, "answer")
    assert error.value.reason == "answer has a wrong type"


@pytest.mark.parametrize("text", [r"\boxed{1}+\boxed{2}", "<answer>1</answer><answer>2</answer>", r"\boxed{1", "plain"])
def test_what_is_no_wrapper_stays(text: str) -> None:
    assert unwrapped(text) == text


OPTIONS: list[Any] = [
    ["3", "4", "5"],
    [3, 4.0, "5"],
    '["3", "4", "5"]',
    "['3', '4', '5']",
    {"A": "3", "B": "4", "C": "5"},
    {"C": 5, "A": 3, "B": 4, "D": None},
    {"text": ["3", "4", "5"], "label": ["A", "B", "C"]},
    '{"a": 3, "b": 4, "c": 5}',
    ["3", "4", "5", None, ""],
]


@pytest.mark.parametrize("cell", OPTIONS, ids=str)
def test_options_in_every_form(tmp_path: Path, cell: Any) -> None:
    assert choices_of(cell) == ("3", "4", "5")
    assert one(tmp_path, {"question": "?", "choices": cell, "answer": "A"}).question == "?\nA. 3\nB. 4\nC. 5"


@pytest.mark.parametrize("question", ["?\nA. 3\nB. 4", "? (A) 3 (B) 4", "?A：3；B：4", "?\n A) 3\n B)  4"])
def test_options_that_the_question_lists_are_not_added(question: str) -> None:
    assert with_choices(question, ("3", "4")) == question


@pytest.mark.parametrize("question", ["?", "A. 30 B. 40", "3 or 4", "PA. 3 PB. 4", "A. 3"])
def test_options_that_it_does_not_list_are(question: str) -> None:
    assert with_choices(question, ("3", "4")) == f"{question}\nA. 3\nB. 4"


def test_rows_without_options_among_others(tmp_path: Path) -> None:
    found = examples(tmp_path, [{"question": "?", "choices": ["1", "2"], "label": 1}, {"question": "open", "choices": None, "label": 5}])
    assert [(row.question, row.answer, row.choices) for row in found] == [("?\nA. 1\nB. 2", "B", ("1", "2")), ("open", "5", ())]


@pytest.mark.parametrize(
    ("messages", "text", "slots"),
    [
        ([{"role": "user", "content": "a?"}], "a?", []),
        ([{"role": "system", "content": "be short"}, {"role": "user", "content": "a?"}], "be short\n\na?", []),
        ([{"from": "human", "value": "<image>a?"}, {"from": "gpt", "value": "1"}], "<image>a?", [None]),
        (
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a?"}]}, {"role": "assistant", "content": "1"}],
            "<image>a?",
            [None],
        ),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "image": None}, {"type": "image", "image": "x.png"}]}], "a<image>", ["x.png"]),
        ([{"role": "user", "content": ["a", {"image_url": {"url": "data:,"}}, "b<image>"]}], "a<image>b<image>", ["data:,", None]),
        ([{"role": "user", "content": None}], "", []),
    ],
)
def test_questions_of_chat_messages(messages: list[Any], text: str, slots: list[Any]) -> None:
    assert prompt_text(messages, "messages") == (text, slots)


def test_pictures_of_messages_and_columns_stand_in_order(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "first <image> then "}, {"type": "image", "image": base64.b64encode(BLUE).decode()}, {"type": "image"}]
    found = one(tmp_path, {"messages": [{"role": "user", "content": content}], "images": [TEXT, TEXT], "answer": "1"})
    assert found.question == "first <image> then <image><image>"
    assert found.images == (images.clean(RED), images.clean(BLUE), images.clean(RED))


def forms(folder: Path) -> dict[str, Any]:
    """A picture in every form that JSON has."""
    (folder / "pictures").mkdir(exist_ok=True)
    (folder / "pictures" / "red.png").write_bytes(RED)
    return {
        "base64": TEXT,
        "data-url": f"data:image/png;base64,{TEXT}",
        "path": "pictures/red.png",
        "absolute": str(folder / "pictures" / "red.png"),
        "struct-path": {"bytes": None, "path": "pictures/red.png"},
        "struct-bytes": {"bytes": TEXT, "path": "elsewhere.png"},
        "list": [TEXT],
        "list-text": json.dumps([TEXT]),
        "list-of-structs": [{"path": "pictures/red.png"}],
    }


FORMS = ["base64", "data-url", "path", "absolute", "struct-path", "struct-bytes", "list", "list-text", "list-of-structs"]


@pytest.mark.parametrize("form", FORMS)
def test_pictures_in_every_form(tmp_path: Path, form: str) -> None:
    assert one(tmp_path, {"question": "?", "answer": "1", "image": forms(tmp_path)[form]}).images == (images.clean(RED),)


def test_parquet_with_pictures_as_hugging_face_writes_them(tmp_path: Path) -> None:
    struct = {"bytes": RED, "path": "x.png"}
    for number, cell in enumerate((struct, [struct, {"bytes": BLUE, "path": None}], RED, [RED, BLUE])):
        path = parquet(tmp_path / f"{number}" / "rows.parquet", [{"problem": "?", "answer": "1", "images": cell}])
        found = table("train", DataConfig(path=str(path)))
        assert found[0].images == tuple(images.clean(data) for data in ((RED, BLUE) if isinstance(cell, list) else (RED,)))


def test_pictures_under_an_unusual_name_are_seen(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [{"problem": "?", "answer": "1", "figure": None if n < 3 else {"bytes": RED}} for n in range(5)])
    found = table("train", DataConfig(path=str(path)))
    assert [len(row.images) for row in found] == [0, 0, 0, 1, 1]
    assert "images: figure" in about_rows(found)


@pytest.mark.parametrize("cell", ["data:image/png;base64," + TEXT, TEXT, [TEXT], "red.png", json.dumps(["red.png"]), {"deep": {"inside": TEXT}}])
def test_pictures_of_any_form_under_an_unusual_name_are_seen(tmp_path: Path, cell: Any) -> None:
    (tmp_path / "red.png").write_bytes(RED)
    assert one(tmp_path, {"problem": "?", "answer": "1", "figure": cell, "other": "blue.png"}).images == (images.clean(RED),)


def test_a_picture_that_no_setting_reads_is_never_dropped(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"problem": "?", "answer": "1", "image": TEXT} for _ in range(30)]
    with pytest.raises(UsageError, match=r"'second' holds a picture but is not read as one; .*data\.image_keys='\[\"image\", \"second\"\]'"):
        examples(tmp_path, [*rows, {**rows[0], "second": TEXT}][::-1])
    late = examples(tmp_path, [*rows, {**rows[0], "second": TEXT}])
    assert len(late[29].images) == 1
    with pytest.raises(DataError, match=r"row 30 .*'second' holds a picture") as caught:
        late[30]
    assert caught.value.reason == "picture in a column that is not read"
    named = examples(tmp_path, [*rows, {**rows[0], "second": TEXT}], image_keys=["image"])
    assert len(named[30].images) == 1, "who names the columns is believed"


def test_where_the_same_picture_comes_from_may_stand_beside_it(tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(RED)
    row = {"problem": "?", "answer": "1", "image": TEXT, "image_path": "red.png"}
    assert len(one(tmp_path, row).images) == 1
    assert len(one(tmp_path, {**row, "image": "red.png", "decoded_image": TEXT}).images) == 1


@pytest.mark.parametrize("setting", ["prompt_key", "answer_key", "choices_key", "id_key"])
def test_a_dotted_name_that_leads_nowhere_stops_at_once(tmp_path: Path, setting: str) -> None:
    row = {"problem": "?", "answer": "1", "inner": {"field": TEXT}}
    with pytest.raises(UsageError, match=rf"no row has 'inner\.feild' \(data\.{setting}\): there is a column 'inner', but its fields: field"):
        examples(tmp_path, [row], **{setting: "inner.feild"})
    with pytest.raises(UsageError, match=r"no row has 'problem\.x'.*it has no fields"):
        examples(tmp_path, [row], image_keys=["problem.x"])
    assert len(examples(tmp_path, [row, {**row, "inner": {"late": TEXT}}], image_keys=["inner.late"])[1].images) == 1


def test_an_id_inside_a_column_is_kept(tmp_path: Path) -> None:
    rows = [{"problem": "?", "answer": "1", "info": {"number": n}} for n in (7, 8, 8)]
    assert [row.id for row in examples(tmp_path, rows, id_key="info.number")] == ["7", "8-row-1", "8-row-2"]


@pytest.mark.parametrize(("answer", "letter"), [("b", "B"), ("(C)", "C"), ("D.", "D"), ("（a）", "A"), (" B\u200b", "B"), ("10", "10"), ("x", "x")])
def test_the_letter_of_an_option_in_any_dress(answer: str, letter: str) -> None:
    assert answer_text(answer, "answer", ("10", "20", "x", "40")) == letter
    with pytest.raises(DataError, match="'answer' is 'E', but the choices are A to D") as caught:
        answer_text("E", "answer", ("10", "20", "x", "40"))
    assert caught.value.reason == "answer is outside the choices"


def test_letters_that_options_bring_along_are_not_doubled() -> None:
    assert choices_of(["A. 1", "B. 2"]) == choices_of(["(A) 1", "(B) 2"]) == ("1", "2")
    assert choices_of(["A. 1", "C. 2"]) == ("A. 1", "C. 2")
    assert choices_of(["A.", "B."]) == ("A.", "B.")


@pytest.mark.parametrize("blank", ["\u200b", "\ufeff", " \u200b\n"])
def test_what_cannot_be_seen_is_no_answer(blank: str) -> None:
    with pytest.raises(DataError, match="'answer' is empty"):
        answer_text(blank, "answer")
    assert answer_text(f"{blank}3{blank}", "answer") == "3"


def test_the_first_line_says_which_files_of_a_folder_are_read(tmp_path: Path) -> None:
    row = {"question": "?", "answer": "1"}
    for number in range(6):
        json_lines(tmp_path / "many" / f"train-{number}.jsonl", [row])
    json_lines(tmp_path / "two" / "train.jsonl", [row])
    json_lines(tmp_path / "two" / "train-more.jsonl", [row])
    assert " 6 rows from train-0.jsonl, train-1.jsonl, train-2.jsonl, train-3.jsonl and 2 more files; " in about_rows(at(tmp_path / "many"))
    assert " 1 rows from train.jsonl; columns" in about_rows(at(tmp_path / "two"))
    assert " 1 rows; columns" in about_rows(at(tmp_path / "two" / "train.jsonl"))


@pytest.mark.parametrize(
    "parts", [[{"type": "text", "text": "3", "image": None}], [{"text": "3"}], [{"type": "text", "text": "\\boxed{"}, {"text": "3}"}]]
)
def test_an_answer_in_parts_of_a_message(parts: list[Any]) -> None:
    assert answer_text([{"role": "user", "content": "q"}, {"role": "assistant", "content": parts}], "messages") == "3"


@pytest.mark.parametrize("write", [json.dumps, str])
def test_chat_messages_as_text(tmp_path: Path, write: Any) -> None:
    messages = [{"role": "user", "content": "<image>how many?"}, {"role": "assistant", "content": "3"}]
    path = separated(tmp_path / "rows.csv", [{"messages": write(messages), "image": TEXT}])
    row = table("train", DataConfig(path=str(path)))[0]
    assert (row.question, row.answer) == ("<image>how many?", "3")
    for text in ('[{"a": 1}] is what?', '[{"role": broken', "[{'a'}]"):
        assert prompt_text(text, "prompt") == (text, [])


def test_a_csv_with_paths_and_a_folder_with_metadata(tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(RED)
    path = separated(
        tmp_path / "rows.csv", [{"question": "two\nlines", "answer": "1", "image": "red.png"}, {"question": "?", "answer": "2", "image": ""}]
    )
    found = table("train", DataConfig(path=str(path)))
    assert [(row.question, len(row.images)) for row in found] == [("<image>two\nlines", 1), ("?", 0)]
    (tmp_path / "set" / "train" / "images").mkdir(parents=True)
    (tmp_path / "set" / "train" / "images" / "1.png").write_bytes(RED)
    (tmp_path / "set" / "common.png").write_bytes(BLUE)
    rows = [{"file_name": name, "text": "?", "label": "x"} for name in ("images/1.png", "common.png")]
    json_lines(tmp_path / "set" / "train" / "metadata.jsonl", rows)
    found = table("train", DataConfig(path=str(tmp_path / "set")))
    assert [row.images for row in found] == [(images.clean(RED),), (images.clean(BLUE),)]


@pytest.mark.parametrize(
    ("question", "count", "expected"),
    [
        ("a <image> b <image>", 2, "a <image> b <image>"),
        ("a", 2, "<image><image>a"),
        ("a", 0, "a"),
        ("<image>\na", 1, "<image>\na"),
        ("a <|image_pad|> b", 1, "<image>a <|image_pad|> b"),
    ],
)
def test_marks_stand_where_they_are_and_pictures_without_marks_come_first(tmp_path: Path, question: str, count: int, expected: str) -> None:
    found = one(tmp_path, {"question": question, "answer": "1", "images": [TEXT] * count})
    assert found.question == expected and len(found.images) == count


@pytest.mark.parametrize(("marks", "pictures"), [(2, 1), (1, 2), (1, 0), (3, 2)])
def test_a_wrong_number_of_marks_names_row_field_and_counts(tmp_path: Path, marks: int, pictures: int) -> None:
    found = examples(
        tmp_path, [{"problem": "?", "answer": "1", "images": []}, {"problem": "<image>" * marks + "?", "answer": "1", "images": [TEXT] * pictures}]
    )
    message = rf"rows\.jsonl \(train\), row 1 \(rows\.jsonl, line 2\): 'problem' has {marks} <image> marks but 'images' holds {pictures} pictures"
    for call in (lambda: found[1], lambda: found.sizes(1), lambda: found.question(1)):
        with pytest.raises(DataError, match=message):
            call()
    assert found[0].question == "?"


def test_of_several_pictures_the_bad_one_is_named(tmp_path: Path) -> None:
    found = examples(tmp_path, [{"question": "?", "answer": "1", "images": [TEXT, "absent.png"]}])
    with pytest.raises(DataError, match=r"row 0 \(rows\.jsonl, line 1\): picture 2 of 2: .*absent\.png"):
        found[0]


def test_the_template_stands_around_the_question(tmp_path: Path) -> None:
    row = {"question": "1+1?", "answer": "2", "choices": ["1", "2"], "image": TEXT}
    assert one(tmp_path, row, template=r"Q: {prompt} Answer in \boxed{}.").question == "<image>Q: 1+1?\nA. 1\nB. 2 Answer in \\boxed{}."
    assert one(tmp_path, row, template="Look: <image> {prompt}").question == "Look: <image> 1+1?\nA. 1\nB. 2"


def test_ids_are_unique(tmp_path: Path) -> None:
    ids = ["a", "b", "a", None, "", 7, "7", 8, "a-row-1"]
    found = examples(tmp_path, [{"id": value, "question": "?", "answer": "1"} for value in ids])
    names = [row.id for row in found]
    assert names == ["a-row-0", "b", "a-row-2", "row-3", "row-4", "7-row-5", "7-row-6", "8", "a-row-1"]
    assert [row.id for row in examples(tmp_path, [{"question": "?", "answer": "1"}] * 2)] == ["row-0", "row-1"]


def test_pictures_are_shrunk_padded_and_blanked_and_sizes_need_no_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def encoded(width: int, height: int) -> str:
        buffer = io.BytesIO()
        Image.new("RGB", (width, height), "red").save(buffer, "PNG")
        return base64.b64encode(buffer.getvalue()).decode()

    rows = [{"question": "?", "answer": "1", "images": [encoded(*size) for size in ((1, 900), (80, 40), (300, 300))]}]
    for settings in ({}, {"max_pixels": 800}, {"blank_images": True}):
        found = examples(tmp_path, rows, **settings)
        pictures = found[0].images
        with monkeypatch.context() as patch:
            patch.setattr(Image.Image, "load", None)
            sizes = found.sizes(0)
        assert sizes == [images.size(data) for data in pictures]
        assert all(width * height <= 800 for width, height in sizes) or "max_pixels" not in settings
        assert max(sizes[0]) <= 200 * min(sizes[0])
        assert all((data == images.blank(data)) == ("blank_images" in settings) for data in pictures)


def test_lengths_from_headers_are_those_of_the_rendered_prompts(tmp_path: Path) -> None:
    rows = [
        {"question": "text only", "answer": "1"},
        {"question": "a <image> b <image> c", "answer": "1", "images": [TEXT, base64.b64encode(BLUE).decode()]},
        {"question": "<|image_pad|> is text", "answer": "1", "images": [TEXT]},
    ]
    path = json_lines(tmp_path / "rows.jsonl", rows)
    parts = Parts(Config(data=DataConfig(name="table", path=str(path))))
    found = parts.examples("train")
    assert isinstance(found, Table)
    for index in range(len(rows)):
        assert parts.renderer.count(found.question(index), found.sizes(index)) == len(parts.renderer.render(found[index]))
    chunks = parts.renderer.render(found[1]).chunks
    assert [type(chunk) for chunk in chunks] == [TextChunk, ImageChunk, TextChunk, ImageChunk, TextChunk]


def test_slices_are_views_and_the_registered_name_is_table(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "rows.jsonl", [{"question": f"q{n}", "answer": "1"} if n != 2 else {"answer": "1"} for n in range(6)])
    found = load_rows("train", DataConfig(name="table", path=str(path)))
    assert isinstance(found, Table) and len(found) == 6 and found[-1].question == "q5"
    part = found[1:4]
    assert len(part) == 3 and part[0].question == "q1" and part[-1].question == "q3" and part[::2][1].question == "q3"
    with pytest.raises(DataError, match="row 2"):
        part[1]
    with pytest.raises(IndexError, match="has 3 rows, asked for index 3"):
        part[3]


def test_a_data_set_of_its_own_over_a_table(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "red.png").write_bytes(RED)
    source = open_rows(json_lines(tmp_path / "rows.jsonl", [{"q": "?", "n": 3}, {"q": " ", "n": 4}]))

    def make(row: Any, position: int) -> Raw:
        return Raw("", row["q"], str(row["n"]), ("red.png",), folder=tmp_path / "elsewhere")

    found = Table(source, make, where="mine (train)", data=DataConfig())
    assert found[0] == Example("row-0", "<image>?", "3", (images.clean(RED),))
    with pytest.raises(DataError, match=r"mine \(train\), row 1 .*: the question is empty"):
        found[1]


def test_a_large_file_is_read_row_by_row(tmp_path: Path) -> None:
    """Ids of all rows are known from one pass; nothing else of a row is kept."""
    count = 3_000
    path = tmp_path / "rows.parquet"
    rows = {"id": [n // 2 for n in range(count)], "question": ["?"] * count, "answer": ["1"] * count, "image": [RED] * count}
    pyarrow.parquet.write_table(pyarrow.table(rows), path, row_group_size=100)
    found = table("train", DataConfig(path=str(path)))
    assert len({found[n].id for n in range(0, count, 7)}) == len(range(0, count, 7))
