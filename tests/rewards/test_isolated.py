"""Worker processes: whatever a grader does, its own answer is an error, the others are graded, and nothing and nobody is left behind."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from seegrad.errors import RewardError
from seegrad.rewards import lanes
from seegrad.rewards.base import Grade, Rewards
from seegrad.rewards.isolated import can_hang
from seegrad.types import Answer, Example

GRADERS = Path(__file__).with_name("graders.py")
DOES, DOES_LATER = f"{GRADERS}:does", f"{GRADERS}:does_later"
ROW = Example("row-7", "?", "aa", meta=MappingProxyType({"number": 40, "inner": MappingProxyType({"a": (1, 2)})}))
PATIENCE = 60.0  # seconds in which a thing that must happen may happen, on the busiest machine
LIMIT = 2.5  # seconds of a call in tests where others must stay within it

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at processes through /proc")


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Ended, whether or not somebody has taken note of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident(pid: int) -> int:
    """Memory in kB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0])


def values(grades: Sequence[Grade], part: str = DOES) -> list[float | None]:
    """The score of the part; None where it has failed, which must be told."""
    assert all((grade.error is None) == (part in grade.scores) for grade in grades)
    return [grade.scores.get(part) for grade in grades]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    gc.collect()
    assert open_descriptors() <= before


def test_who_is_isolated() -> None:
    assert can_hang("math") and can_hang("mine.py:f") and can_hang("package.module:f")
    assert not any(can_hang(name) for name in ("count", "format", "choice", "length"))
    with Rewards({"count": 1.0}) as rewards:
        rewards.grade(ROW, "")
        assert not rewards._pool._alive


def test_whatever_a_grader_does_only_its_own_answer_fails(tmp_path: Path) -> None:
    texts = ["aa", "sleep 600", "aa", "exit 0", "no", "exit 7", "signal SIGSEGV", "aa", "signal SIGKILL", "interrupt", "aa", "read"]
    other, others = Example("row-7", "?", "no"), ["aa", "spin", "no", f"child {tmp_path}", "no", "fork", "no", f"session {tmp_path}", "surrogate"]
    with Rewards({DOES: 1.0}, timeout=LIMIT) as rewards:
        grades, more, last = rewards.grade_groups([(ROW, texts), (other, others), (ROW, ["aa", "no"] * 10)])
    assert values(grades) == [1, None, 1, None, 0, None, None, 1, None, None, 1, 0]
    assert values(more) == [0, None, 1, None, 1, 1, 1, 0, None]
    assert values(last) == [1, 0] * 10
    told = {text: grade.error for text, grade in zip([*texts, *others], [*grades, *more], strict=True) if grade.error}
    for text, words in {
        "sleep 600": "took longer than 2.5 s (reward.timeout) and was stopped",
        "spin": "took longer than 2.5 s (reward.timeout) and was stopped",
        "exit 0": "ended its worker process (exit code 0)",
        "exit 7": "ended its worker process (exit code 7)",
        "signal SIGSEGV": "ended its worker process (SIGSEGV)",
        "signal SIGKILL": "ended its worker process (SIGKILL)",
        "interrupt": "raised KeyboardInterrupt",
        "surrogate": "raised ValueError: \\ud800",
    }.items():
        assert words in told[text] and "graders.py:" in told[text] and "sample 'row-7'" in told[text]
    assert len(pids_in(tmp_path)) == 2
    wait_for(lambda: all(map(is_gone, pids_in(tmp_path))))  # what a grader started ends with its worker, in a session of its own too


def test_of_async_calls_only_the_guilty_ones_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "GRACE", 1.0)
    texts = ["aa", "exit 3", "no", "sleep 600", "aa", "stubborn"]
    with Rewards({DOES_LATER: 1.0}, timeout=LIMIT, workers=1) as rewards:
        grades, others = rewards.grade_groups([(ROW, texts), (ROW, ["aa", "no"] * 40)])
        assert rewards.grade(ROW, "aa").reward == 1
    assert values(grades, DOES_LATER) == [1, None, 0, None, 1, None]
    assert values(others, DOES_LATER) == [1, 0] * 40
    assert "exit code 3" in str(grades[1].error)
    assert all("took longer than 2.5 s" in str(grades[number].error) for number in (3, 5))


def test_plain_and_async_parts_share_a_worker() -> None:
    names = [f"{GRADERS}:{name}" for name in ("plain", "later", "group", "later_group", "wrapped_later")]
    with Rewards(dict.fromkeys(names, 1.0), workers=1) as rewards:
        for _ in range(3):
            grades = [grade for group in rewards.grade_groups([(ROW, ["aa", "b"])] * 5) for grade in group]
            assert [grade.reward for grade in grades] == [1 + 1 + 0.5 + 2 + 1, 0.5 + 1] * 5
        assert len(rewards._pool._alive) == 1


def test_a_worker_is_a_clean_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No torch, another __main__; folder, environment and neighbours as here; started when first needed, and not again."""
    (tmp_path / "neighbour.py").write_text("HERE = 5.0\n")
    (tmp_path / "mine.py").write_text(
        "import os\nfrom pathlib import Path\n\n\n"
        "def f(example, text):\n    from neighbour import HERE\n    return HERE + (os.environ['MARK'] == 'é') + Path('neighbour.py').exists()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the file's folder is added
    monkeypatch.setenv("MARK", "é")
    clean = [f"{GRADERS}:torch_is_here", f"{GRADERS}:main_is_ours"]
    with Rewards({"mine.py:f": 1.0, **dict.fromkeys(clean, 100.0)}, workers=1) as rewards:
        assert not rewards._pool._alive
        assert rewards.grade(ROW, "").reward == 7.0
        (first,) = rewards._pool._alive
        assert rewards.grade(ROW, "").reward == 7.0
        assert rewards._pool._alive == {first}
        rewards.close()
        assert is_gone(first.pid) and not rewards._pool._alive
        assert rewards.grade(ROW, "").reward == 7.0


def test_pictures_and_read_only_mappings_arrive() -> None:
    row = Example("big", "?", "1", images=(os.urandom(3_000_000), b"123"), choices=("p",), meta=ROW.meta)
    with Rewards({f"{GRADERS}:pictures": 1.0, f"{GRADERS}:described": 1.0}) as rewards:
        assert {grade.reward for group in rewards.grade_groups([(row, ["a"] * 4)] * 4) for grade in group} == {3_000_003.0 + 41}


def test_a_sample_that_cannot_be_sent_says_so() -> None:
    broken = Example("row-8", "?", "aa", meta={"of no use": lambda: None})
    with Rewards({DOES: 1.0}) as rewards:
        grades = [group[0] for group in rewards.grade_groups([(ROW, ["aa"]), (broken, ["aa"]), (ROW, ["no"])])]
    assert values(grades) == [1, None, 0]
    assert "cannot get the sample in a worker process" in str(grades[1].error) and "reward.isolate=false" in str(grades[1].error)


def test_a_worker_that_died_while_idle_is_replaced() -> None:
    with Rewards({DOES: 1.0}, workers=1) as rewards:
        assert rewards.grade(ROW, "aa").reward == 1
        (process,) = rewards._pool._alive
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: is_gone(process.pid))
        assert values(rewards.grade_groups([(ROW, ["aa", "no"])])[0]) == [1, 0]


def test_a_file_that_only_loads_here_says_so(tmp_path: Path) -> None:
    body = "import sys\n\nif 'pytest' not in sys.modules:\n    {}\n\n\ndef f(example, text):\n    return 1\n"
    (tmp_path / "raises.py").write_text(body.format("raise RuntimeError('only here')"))
    with Rewards({f"{tmp_path}/raises.py:f": 1.0}) as rewards:
        assert "does not work in a worker process" in str(rewards.grade(ROW, "").error) and "only here" in str(rewards.grade(ROW, "").error)
    (tmp_path / "exits.py").write_text(body.format("import os; os._exit(4)"))
    with Rewards({f"{tmp_path}/exits.py:f": 1.0}) as rewards:
        assert "was not called: its worker process ended before (exit code 4)" in str(rewards.grade(ROW, "").error)


def test_a_file_that_never_loads_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "START_SECONDS", 2.0)
    (tmp_path / "slow.py").write_text(
        "import sys\nimport time\n\nif 'pytest' not in sys.modules:\n    time.sleep(600)\n\n\ndef f(text):\n    return 1\n"
    )
    with (
        Rewards({f"{tmp_path}/slow.py:f": 1.0}) as rewards,
        pytest.raises(RewardError, match=r"did not load it within 2 s; set reward\.isolate=false"),
    ):
        rewards.grade(ROW, "")


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Rewards({DOES: 1.0}) as rewards, pytest.raises(RewardError, match=r"no worker process .*/nowhere/python.*reward\.isolate=false"):
        rewards.grade(ROW, "")


def test_threads_may_grade_at_once_and_a_hang_is_stopped_there_too() -> None:
    """More threads than workers; each gets its own answers back, whatever the others do, also while the rewards are closed."""
    found: dict[int, list[float | None]] = {}

    def grade(number: int) -> None:
        row = Example(f"row-{number}", "?", str(number))
        texts = [str(n) for n in range(6)] + (["sleep 600"] if number == 2 else [])
        found[number] = [value for _ in range(2) for value in values(rewards.grade_groups([(row, texts)])[0])]

    with Rewards({DOES: 1.0}, timeout=LIMIT) as rewards:
        threads = [threading.Thread(target=grade, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        rewards.close()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads)
    assert not rewards._pool._alive
    assert found == {number: ([float(n == number) for n in range(6)] + [None] * (number == 2)) * 2 for number in range(5)}


def script(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """A process of its own that grades with `rewards`; warnings are errors in it."""
    head = f"""
import json, os, signal, sys, threading, time
from seegrad.rewards.base import Rewards
from seegrad.types import Example
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits that it is ignored
ROW = Example("row-7", "?", "aa")
rewards = Rewards({{{DOES!r}: 1.0}}, workers=2, timeout=600)
"""
    path = tmp_path / "script.py"
    path.write_text(head + body)
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it does not end; so far: {process.communicate()}") from None


def test_prints_of_graders_reach_the_terminal_and_nothing_else(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        "grades = rewards.grade_groups([(ROW, ['print y', 'raw z', 'aa', 'print y', 'raw z'])])[0]\n"
        "print(json.dumps([[grade.reward, grade.error] for grade in grades]))\n",
    )
    out, err = finish(process)
    assert json.loads(out) == [[0, None], [0, None], [1, None], [0, None], [0, None]]  # stdout is the program's own
    assert (err.count("y"), err.count("z")) == (4000, 2000)


def test_a_program_that_closes_nothing_leaves_nobody_and_says_nothing(tmp_path: Path) -> None:
    out, err = finish(script(tmp_path, f"rewards.grade_groups([(ROW, ['aa', 'pid {tmp_path}'])] * 4)\nprint('done')\n"))
    assert (out, err) == ("done\n", "")
    assert 1 <= len(pids_in(tmp_path)) <= 2
    wait_for(lambda: all(map(is_gone, pids_in(tmp_path))))


@pytest.mark.parametrize("last", ["sleep 600", "spin"])
def test_a_parent_that_is_killed_takes_its_workers_along(tmp_path: Path, last: str) -> None:
    process = script(tmp_path, f"rewards.grade_groups([(ROW, ['pid {tmp_path}', {last!r}])] * 2)\n")
    wait_for(lambda: len(pids_in(tmp_path)) == 2)
    assert not any(map(is_gone, pids_in(tmp_path)))
    process.kill()
    finish(process)
    wait_for(lambda: all(map(is_gone, pids_in(tmp_path))))


def test_ctrl_c_while_a_grader_hangs_is_prompt(tmp_path: Path) -> None:
    """The terminal sends the signal to the whole group of the program; the workers are outside, and end because the program says so."""
    process = script(
        tmp_path,
        f"""
try:
    rewards.grade_groups([(ROW, ['pid {tmp_path}', 'sleep 600'])] * 2)
except KeyboardInterrupt:
    print('interrupted', len(rewards._pool._alive), rewards.grade(ROW, 'aa').reward)
""",
    )
    wait_for(lambda: len(pids_in(tmp_path)) == 2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = finish(process)
    assert (out, err) == ("interrupted 0 1.0\n", "")
    wait_for(lambda: all(map(is_gone, pids_in(tmp_path))))


def test_a_first_ctrl_c_that_is_only_noted_does_not_disturb_the_graders(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        f"""
noted = []
signal.signal(signal.SIGINT, lambda *_: noted.append(1))
grades = rewards.grade_groups([(ROW, ['pid {tmp_path}', 'sleep 3', 'aa'])] * 2)
print(len(noted), [grade.error for group in grades for grade in group], [group[2].reward for group in grades])
""",
    )
    wait_for(lambda: len(pids_in(tmp_path)) == 2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = finish(process)
    assert (out, err) == ("1 [None, None, None, None, None, None] [1.0, 1.0]\n", "")


def test_a_fork_has_workers_of_its_own(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        f"""
rewards.grade(ROW, 'aa')
child = os.fork()
if child == 0:
    good = rewards.grade(ROW, 'aa').reward == 1 and rewards.grade(ROW, 'pid {tmp_path}').reward == 0
    rewards.close()
    os._exit(0 if good else 1)
print(os.waitpid(child, 0)[1], rewards.grade(ROW, 'aa').reward, len(rewards._pool._alive))
""",
    )
    assert finish(process) == ("0 1.0 1\n", "")
    wait_for(lambda: all(map(is_gone, pids_in(tmp_path))))


def many(rewards: Rewards, num_groups: int, group_size: int, hang_every: int) -> tuple[int, int]:
    """Grade so many groups, with right, wrong and hanging answers; returns how many were graded and how many failed. No verdict may be wrong."""
    graded = failed = 0
    for first in range(0, num_groups, 10):
        groups = []
        for number in range(first, min(first + 10, num_groups)):
            places = range(number * group_size, (number + 1) * group_size)
            texts = ["sleep 600" if place % hang_every == 3 else str(number) if place % 2 else f"not {number}" for place in places]
            groups.append((Example(f"row-{number}", "?", str(number), images=(bytes(20_000),)), texts))
        for (row, texts), grades in zip(groups, rewards.grade_groups(groups), strict=True):
            for text, grade in zip(texts, grades, strict=True):
                failed += grade.error is not None
                graded += 1
                assert (grade.error is not None) == (text == "sleep 600"), (row.id, text, grade)
                assert grade.error is not None or grade.reward == float(text == row.answer), (row.id, text, grade)
    return graded, failed


def test_many_answers_with_hanging_ones() -> None:
    with Rewards({DOES: 1.0, "format": 0.0}, timeout=LIMIT) as rewards:
        many(rewards, 2, 10, 1000)
        before = open_descriptors()
        assert many(rewards, 60, 10, 300) == (600, 2)
        assert open_descriptors() <= before
        assert len(rewards._pool._alive) <= 2


@pytest.mark.soak
def test_ten_thousand_answers_with_hanging_ones_in_constant_memory() -> None:
    with Rewards({DOES: 1.0, DOES_LATER: 0.5}, timeout=0.5) as rewards:
        many_both(rewards, 100)
        before, size = open_descriptors(), resident(os.getpid())
        started = time.monotonic()
        many_both(rewards, 10_000)
        seconds = time.monotonic() - started
        workers = [resident(process.pid) for process in rewards._pool._alive]
        assert open_descriptors() <= before and len(workers) <= 2
        assert resident(os.getpid()) < size + 30_000 and max(workers) < 150_000
        assert seconds < 300


def many_both(rewards: Rewards, count: int) -> None:
    """Groups of 10 for a plain and an async part; 1 answer in 500 hangs in both."""
    for first in range(0, count, 100):
        groups = []
        for number in range(first // 10, first // 10 + 10):
            texts = ["wait 600" if (number * 10 + n) % 500 == 3 else str(number + n % 2) for n in range(10)]
            groups.append((Example(f"row-{number}", "?", str(number), images=(bytes(200_000),)), [Answer(text) for text in texts]))
        for (row, answers), grades in zip(groups, rewards.grade_groups(groups), strict=True):
            for answer, grade in zip(answers, grades, strict=True):
                assert (grade.error is not None) == (answer.text == "wait 600"), (row.id, answer.text, grade)
                assert grade.error is not None or grade.reward == 1.5 * (answer.text == row.answer), (row.id, answer.text, grade)
