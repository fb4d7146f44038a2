"""The example of a judge, against a server on this machine that is slow, broken and wrong by turns."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from seegrad.rewards.base import Rewards
from seegrad.types import Example

JUDGE = f"{Path(__file__).parents[2] / 'examples' / 'judge_reward.py'}:judge"
ROW = Example("row-7", "How many circles?", "3", images=(b"a picture", b"another"))


class Server(ThreadingHTTPServer):
    """A judge whose verdict depends on the student's text and on how often it was asked about it."""

    request_queue_size = 128  # connections that arrive at once

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[str] = Counter()
        self.bodies: list[Any] = []
        self.keys: set[str | None] = set()
        self.over = threading.Event()
        self.lock = threading.Lock()

    def answer(self, text: str, time: int) -> tuple[int, str]:
        """Status and body of the reply to the `time`-th question about a text."""
        first = time == 1
        if text == "slow" and first:
            self.over.wait(60)
        if text == "busy" and time <= 2:
            return (500 if first else 429), "later"
        if text == "garbled" and first:
            return 200, "{not JSON"
        if text == "refused":
            return 401, '{"error": "no such key"}'
        if text == "never":
            return 500, "never"
        verdicts = {"wrong": "score: 0", "silent": "I like it.", "generous": "Score: 7", "strange": "{}"}
        reply = verdicts.get(text, "Well.\nscore: 0.75")
        return 200, "[]" if reply == "{}" else json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]})


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][1]["content"][-1]["text"].rpartition("\n=====\n")[2].removesuffix("\n=====")
        with self.server.lock:
            self.server.asked[text] += 1
            time = self.server.asked[text]
            self.server.bodies.append((self.path, body))
            self.server.keys.add(self.headers["Authorization"])
        status, reply = self.server.answer(text, time)
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply.encode())))
            self.end_headers()
            self.wfile.write(reply.encode())
        except OSError:
            pass  # the one who asked has not waited

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{running.server_port}/v1/")
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


def test_a_judge_that_is_slow_broken_and_wrong_by_turns(server: Server) -> None:
    texts = ["good", "slow", "busy", "garbled", "wrong", "refused", "never", "silent", "generous", "strange"]
    with Rewards({JUDGE: 1.0}, settings={JUDGE: {"model": "m", "attempts": 4, "seconds": 5.0, "pause": 0.01}}, timeout=60) as rewards:
        grades = dict(zip(texts, rewards.grade_groups([(ROW, texts)])[0], strict=True))
    assert {text: grade.reward for text, grade in grades.items() if grade.error is None} == {
        "good": 0.75,
        "slow": 0.75,
        "busy": 0.75,
        "garbled": 0.75,
        "wrong": 0.0,
    }
    for text, words in {
        "refused": "the judge refuses with status 401",
        "never": "no score after 4 attempts; the last: Retry: status 500",
        "silent": "no score from 0 to 1 in the reply 'I like it.'",
        "generous": "no score from 0 to 1 in the reply 'Score: 7'",
        "strange": "not a chat completion (TypeError): '[]'",
    }.items():
        assert words in str(grades[text].error) and "judge_reward.py:" in str(grades[text].error)
    assert (server.asked["refused"], server.asked["never"]) == (1, 4)
    assert server.asked["busy"] >= 3 and server.asked["slow"] >= 2


def test_the_judge_sees_the_question_the_reference_and_the_pictures(server: Server) -> None:
    with Rewards({JUDGE: 1.0}, settings={JUDGE: {"model": "some-model", "seconds": 30.0}}, timeout=60) as rewards:
        assert [grade.reward for grade in rewards.grade_groups([(ROW, ["a", "b"])])[0]] == [0.75, 0.75]
    assert server.keys == {"Bearer secret"} and len(server.bodies) >= 2
    path, body = server.bodies[0]
    *pictures, texts = body["messages"][1]["content"]
    assert (path, body["model"]) == ("/v1/chat/completions", "some-model")
    assert [base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,")) for part in pictures] == list(ROW.images)
    assert "How many circles?" in texts["text"] and "Reference answer: 3" in texts["text"]


def test_many_answers_are_judged_at_a_time(server: Server) -> None:
    texts = [f"answer {number}" for number in range(99)] + ["slow"]
    with Rewards({JUDGE: 1.0}, settings={JUDGE: {"model": "m", "seconds": 5.0, "pause": 0.01, "attempts": 5}}, timeout=120) as rewards:
        grades = rewards.grade_groups([(ROW, texts[start : start + 10]) for start in range(0, len(texts), 10)])
    assert {grade.reward for group in grades for grade in group} == {0.75}
    assert set(server.asked) == set(texts)
