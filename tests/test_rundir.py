"""Run directories: what is written is read back exactly; damage is named; nothing earlier is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad import checkpoints, durable
from seegrad.config import Config, load_config
from seegrad.environment import changed_versions
from seegrad.errors import RunError
from seegrad.images import content_hash
from seegrad.rundir import RunDir, RunWriter, is_timing, new_path, short_floats
from seegrad.types import Completion, Example, Group, ModelInput, Rollout, TextChunk
from tests.disk import small_file_system

CONFIG = Config(name="trial", steps=8, seed=3)
PICTURE = b"\x89PNG pretend"


def group(step: int, number: int = 0, *, flat: bool = False, seed: int = 0) -> Group:
    """Two rollouts with awkward floats and texts."""
    generator = np.random.default_rng((step, number, seed))

    def rollout(reward: float, text: str) -> Rollout:
        logprobs_T = -generator.exponential(1.0, 3).astype(np.float32)
        completion = Completion((5, 6, 7), logprobs_T, "stop", text)
        return Rollout(
            completion, {"count": reward, "format": 1.0}, reward, parsed="3", correct=reward > 0, advantage=reward - 0.5, policy_version=step - 1
        )

    example = Example(f"row-{step}-{number}", "几个圆形？\n“引号”\u2028", "3", (PICTURE,), ("1", "3"))
    texts = ("圆形：1+2=3。\\boxed{3}", 'line\nbreak "quote" \u2028')
    return Group(example, ModelInput((TextChunk((1, 2, 3, 4)),)), tuple(rollout(1.0 if flat else float(i), text) for i, text in enumerate(texts)))


def write(run: RunWriter, step: int, num_groups: int = 2) -> list[Group]:
    groups = [group(step, number) for number in range(num_groups)]
    traces = {(0, 1): (np.array([-0.1, -2.5, -1e-7], np.float32), np.array([0.3, 0.2, 1 / 3], np.float32))}
    run.write_step(step, groups, traces, {"reward": step / 3, "trainer/grad_norm": float("inf"), "time/step": 0.1})
    return groups


def save(run: RunWriter, step: int, keep: int = 2) -> None:
    with run.checkpoint(step, keep) as checkpoint:
        for folder in (checkpoint.weights, checkpoint.state):
            folder.mkdir()
            (folder / "tensors.bin").write_bytes(bytes([step]) * 1000)


@pytest.fixture
def run(tmp_path: Path):  # type: ignore[no-untyped-def]
    with RunWriter.create(tmp_path / "run", CONFIG) as writer:
        yield writer


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    with small_file_system(tmp_path / "disk", "2m") as folder:
        yield folder


def tree(folder: Path) -> dict[str, bytes]:
    """Every file but those that hold times or process numbers."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("lock", "status.json")
    }


def test_a_step_is_read_back_exactly(run: RunWriter) -> None:
    groups = write(run, 1)
    reader = RunDir.open(run.path)
    lines = reader.rollouts(1)
    assert [(line["group"], line["attempt"]) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for line in lines:
        rollout = groups[line["group"]].rollouts_G[line["attempt"]]
        example = groups[line["group"]].example
        assert (line["text"], line["question"], line["answer"], line["choices"]) == (rollout.completion.text, example.question, "3", ["1", "3"])
        assert tuple(line["tokens"]) == rollout.completion.tokens_T
        assert np.array_equal(np.array(line["sampler_logprobs"], np.float32), rollout.completion.logprobs_T)
        assert (line["reward"], line["advantage"], line["parsed"], line["correct"]) == (rollout.reward, rollout.advantage, "3", rollout.correct)
        assert line["scores"] == dict(rollout.scores) and line["prompt_tokens"] == 4 and line["policy_version"] == 0
        assert reader.image(line["images"][0]) == PICTURE
    assert lines[1]["entropy"] == [0.3, 0.2, 0.33333334] and lines[1]["trainer_logprobs"] == [-0.1, -2.5, -1e-7]
    assert lines[0]["entropy"] is None and lines[0]["trainer_logprobs"] is None
    assert reader.metrics() == [{"step": 1, "reward": 1 / 3, "trainer/grad_norm": None, "time/step": 0.1}]
    assert reader.config() == CONFIG


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_float32_survives_the_text(values: list[float]) -> None:
    array = np.array(values, np.float32)
    back = np.array(json.loads(json.dumps(short_floats(array))), np.float32)
    assert np.array_equal(array, back.reshape(array.shape))


def test_floats_are_short_and_fewer_digits_would_be_noticed() -> None:
    array = -np.random.default_rng(0).exponential(1.0, 1000).astype(np.float32)
    assert max(len(repr(value)) for value in short_floats(array)) <= 15
    rounded = np.array([float(f"{value:.6g}") for value in array], np.float32)
    assert not np.array_equal(array, rounded)


def test_index_finds_each_group_without_reading_the_rest(run: RunWriter) -> None:
    for step in (1, 2):
        write(run, step, num_groups=3)
    reader = RunDir.open(run.path)
    entries = list(reader.index())
    assert [(entry.step, entry.group) for entry in entries] == [(step, number) for step in (1, 2) for number in range(3)]
    for entry in entries:
        assert reader.group(entry) == [line for line in reader.rollouts(entry.step) if line["group"] == entry.group]
        assert (entry.example_id, entry.rewards, entry.num_correct, entry.flat) == (f"row-{entry.step}-{entry.group}", (0.0, 1.0), 1, False)
    # Another group's bytes may be garbage: this group is still read.
    path = run.path / "rollouts" / entries[1].file
    data = bytearray(path.read_bytes())
    data[: entries[1].offset] = b"#" * entries[1].offset
    path.write_bytes(data)
    assert reader.group(entries[1])[0]["example_id"] == "row-1-1"


def test_pictures_are_kept_once(run: RunWriter) -> None:
    for step in (1, 2):
        write(run, step)
    assert [path.name for path in (run.path / "images").iterdir()] == [f"{content_hash(PICTURE)}.png"]


def test_two_runs_may_not_write_one_directory(run: RunWriter) -> None:
    with pytest.raises(RunError, match=f"is being written by process {os.getpid()}"):
        RunWriter.resume(run.path)
    code = f"from seegrad.rundir import RunWriter; RunWriter.resume({str(run.path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode == 1 and f"is being written by process {os.getpid()}" in other.stderr
    assert RunDir.open(run.path).is_locked()
    run.close()
    assert not RunDir.open(run.path).is_locked()
    RunWriter.resume(run.path).close()


def test_an_existing_run_or_foreign_folder_is_not_written_over(run: RunWriter, tmp_path: Path) -> None:
    run.close()
    before = tree(run.path)
    with pytest.raises(RunError, match="already holds a run; continue it with --resume"):
        RunWriter.create(run.path, CONFIG)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(RunError, match=r"is not empty \(it holds 'chapter.tex'\)"):
        RunWriter.create(tmp_path / "thesis", CONFIG)
    with pytest.raises(RunError, match="not a run directory"):
        RunDir.open(tmp_path / "thesis")
    assert tree(run.path) == before
    RunWriter.resume(run.path).close()  # a refused create has let go of the lock


def test_a_path_that_cannot_be_a_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="cannot be used as a run directory"):
            RunWriter.create(path, CONFIG)


def test_a_create_that_was_killed_early_can_be_repeated(run: RunWriter) -> None:
    run.close()
    (run.path / "config.toml").unlink()
    (run.path / ".config.toml.123.tmp").write_text("na")
    with RunWriter.create(run.path, CONFIG) as again:
        assert again.status().state == "running"


def test_half_written_last_line_is_not_seen_and_damage_inside_is_named(run: RunWriter) -> None:
    for step in (1, 2, 3):
        write(run, step)
    path = run.path / "metrics.jsonl"
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1])):
        path.write_bytes(whole[:-cut])
        assert [line["step"] for line in RunDir.open(run.path).metrics()] == [1, 2]
    path.write_bytes(b"{" + whole[2:])
    with pytest.raises(RunError, match=r"metrics.jsonl:1 is not valid JSON"):
        RunDir.open(run.path).metrics()


def test_cut_leaves_exactly_what_an_undisturbed_run_had(tmp_path: Path) -> None:
    short, long = (RunWriter.create(tmp_path / name, CONFIG) for name in ("short", "long"))
    for step in range(1, 4):
        write(short, step)
    for step in range(1, 6):
        write(long, step)
        long.eval_path(f"step-{step:06d}").write_text("{}")
    long.eval_path("test").write_text("{}")  # a person's evaluation stays
    for step in range(1, 4):
        short.eval_path(f"step-{step:06d}").write_text("{}")
    short.eval_path("test").write_text("{}")
    with (long.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "rew')
    (long.path / "rollouts" / ".step-000006.jsonl.99.tmp").write_text("half")
    skip = {"environment.json"}
    wanted = {name: data for name, data in tree(short.path).items() if name not in skip}
    assert {name: data for name, data in tree(long.path).items() if name not in skip} != wanted  # the comparison can fail
    long.cut(3)
    assert {name: data for name, data in tree(long.path).items() if name not in skip} == wanted
    write(short, 4)
    write(long, 4)
    assert (long.path / "rollouts" / "index.jsonl").read_bytes() == (short.path / "rollouts" / "index.jsonl").read_bytes()


def test_old_states_go_and_weights_stay(run: RunWriter) -> None:
    for step in (1, 2, 3, 4):
        save(run, step, keep=2)
    found = run.checkpoints()
    assert [checkpoint.step for checkpoint in found] == [1, 2, 3, 4]
    assert [checkpoint.has_state for checkpoint in found] == [False, False, True, True]
    assert all((checkpoint.weights / "tensors.bin").read_bytes() == bytes([checkpoint.step]) * 1000 for checkpoint in found)
    assert [checkpoint.damage() for checkpoint in found] == [None] * 4
    assert run.resume_point()[0] == found[-1]


DAMAGES = {
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "state/tensors.bin has 999 bytes, expected 1000"),
    "emptied": (lambda path: path.write_bytes(b""), "state/tensors.bin has 0 bytes"),
    "one bit": (lambda path: path.write_bytes(b"\x00" + path.read_bytes()[1:]), "right size but other bytes"),
    "gone": (lambda path: path.unlink(), "state/tensors.bin is missing"),
    "no manifest": (lambda path: (path.parents[1] / "manifest.json").unlink(), "manifest.json does not exist"),
    "half a manifest": (lambda path: (path.parents[1] / "manifest.json").write_text('{"files"'), "not valid JSON"),
    "another manifest": (lambda path: (path.parents[1] / "manifest.json").write_text("[]"), "not a checkpoint manifest"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(run: RunWriter, kind: str) -> None:
    for step in (1, 2, 3, 4):
        write(run, step, num_groups=1)
        if step % 2 == 0:
            save(run, step)
    damage, words = DAMAGES[kind]
    damage(run.path / "checkpoints" / "step-000004" / "state" / "tensors.bin")
    checkpoint, warnings = run.resume_point()
    assert checkpoint is not None and checkpoint.step == 2
    assert len(warnings) == 1 and "step-000004 is damaged and skipped" in warnings[0] and words in warnings[0]
    run.cut(2)
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [2]
    assert (run.path / "checkpoints" / "damaged-step-000004").is_dir()
    for step in (3, 4):
        write(run, step, num_groups=1)
    save(run, 4)
    assert run.resume_point()[0].step == 4 and run.resume_point()[1] == []


def test_all_damaged_is_an_error_and_none_is_a_start(run: RunWriter) -> None:
    assert run.resume_point() == (None, [])
    save(run, 2)
    (run.path / "checkpoints" / "step-000002" / "weights" / "tensors.bin").write_bytes(b"")
    with pytest.raises(RunError, match=r"can be continued from .*weights/tensors.bin has 0 bytes"):
        run.resume_point()


def test_a_checkpoint_that_fails_leaves_nothing(run: RunWriter) -> None:
    save(run, 1)
    with pytest.raises(RuntimeError, match="adapter"), run.checkpoint(2, 2) as checkpoint:
        checkpoint.weights.mkdir()
        (checkpoint.weights / "tensors.bin").write_bytes(b"x" * 10)
        raise RuntimeError("adapter")
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["step-000001"]


def test_leftovers_of_a_kill_are_removed(run: RunWriter) -> None:
    save(run, 1)
    aside = run.path / "checkpoints" / ".step-000002.tmp" / "weights"
    aside.mkdir(parents=True)
    (aside / "tensors.bin").write_bytes(b"half")
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [1]
    run.cut(1)
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["step-000001"]


def test_a_full_disk_is_one_line_and_loses_nothing(small_disk: Path) -> None:
    """A real file system of 2 MiB that fills up: in a step, then in a checkpoint."""
    with RunWriter.create(small_disk / "run", CONFIG) as run:
        write(run, 1)
        save(run, 1)
        filler = small_disk / "filler"
        filler.write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
        before = tree(run.path)
        with pytest.raises(RunError, match=r"disk full while writing .*; kept: steps 1-1 and checkpoint .*step-000001; .*--resume") as caught:
            write(run, 2)
        assert "\n" not in str(caught.value)
        assert tree(run.path) == before
        filler.write_bytes(bytes(filler.stat().st_size - 100_000))
        with pytest.raises(RunError, match=r"disk full while writing .*step-000002"), run.checkpoint(2, 2) as checkpoint:
            checkpoint.weights.mkdir()
            _write_without_errno(checkpoint.weights / "tensors.bin", 2_000_000)
        assert tree(run.path) == before
        filler.unlink()
        write(run, 2)
        save(run, 2)
        assert run.resume_point()[0].step == 2 and [line["step"] for line in run.metrics()] == [1, 2]


def _write_without_errno(path: Path, size: int) -> None:
    """As a tensor library does it: the failure arrives as another exception, without a cause."""
    full = False
    try:
        path.write_bytes(bytes(size))
    except OSError:
        full = True
    if full:
        raise ValueError("serialization failed")


@pytest.mark.parametrize("room", [0, 1, 30, 60])
def test_an_append_that_runs_out_of_space_is_taken_back(tmp_path: Path, room: int) -> None:
    """The process may write only `room` bytes more (a real limit of the system); the file must stay as it was."""
    path = tmp_path / "metrics.jsonl"
    durable.append_lines(path, [{"step": 1}])
    before = path.read_bytes()
    code = f"""
import resource
from pathlib import Path
from seegrad.durable import append_lines
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + room},) * 2)
append_lines(Path({str(path)!r}), [{{"step": 2, "text": "x" * 200}}])
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == 1 and "File too large" in child.stderr
    assert path.read_bytes() == before


def test_other_failures_are_not_called_a_full_disk(run: RunWriter) -> None:
    assert durable.is_disk_full(OSError(errno.ENOSPC, "no space"), run.path)
    assert not durable.is_disk_full(OSError(errno.EACCES, "denied"), run.path)
    with pytest.raises(ValueError, match="real bug"), run.checkpoint(1, 1):
        raise ValueError("real bug")


def test_status_config_and_environment(run: RunWriter) -> None:
    run.write_status("failed", 3, 8, "BackendError: out of memory")
    status = RunDir.open(run.path).status()
    assert (status.state, status.step, status.steps, status.message, status.pid) == ("failed", 3, 8, "BackendError: out of memory", os.getpid())
    environment = run.environment()
    assert environment["seed"] == 3 and environment["python"].startswith("3.") and environment["command"] == sys.argv
    assert environment["packages"]["numpy"] == np.__version__
    assert load_config(str(run.path / "config.toml")) == CONFIG


def test_changed_versions_are_named() -> None:
    then = {"python": "3.11", "packages": {"torch": "2.12", "peft": "0.19"}}
    assert changed_versions(then, then) == ""
    assert changed_versions(then, {"python": "3.11", "packages": {"torch": "2.13"}}) == "peft 0.19 → absent, torch 2.12 → 2.13"


def test_new_paths_are_claimed(tmp_path: Path) -> None:
    first, second = new_path("count", tmp_path), new_path("count", tmp_path)
    assert first.name.endswith("-1") and second.name.endswith("-2") and first.is_dir()
    RunWriter.create(first, CONFIG).close()


def test_only_speed_counts_as_timing() -> None:
    assert [name for name in ("time/step", "tokens_per_second", "tokens/sampled", "reward") if is_timing(name)] == ["time/step", "tokens_per_second"]


def test_step_names() -> None:
    assert [checkpoints.step_of(name) for name in ("step-000025", "step-1000000", "damaged-step-000025", "step-x", ".step-000025.tmp")] == [
        25,
        1_000_000,
        None,
        None,
        None,
    ]


def test_a_run_whose_checkpoints_were_deleted_is_not_started_over(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"save": CONFIG.save.model_copy(update={"every": 2})})
    with RunWriter.create(tmp_path / "run", config) as run:
        for step in (1, 2):
            write(run, step)
        assert run.resume_point() == (None, [])  # killed before the checkpoint of step 2
        write(run, 3)
        before = tree(run.path)
        with pytest.raises(RunError, match="has taken 3 steps but its checkpoints are gone"):
            run.resume_point()
        assert tree(run.path) == before


def test_damage_to_the_small_files_does_not_keep_a_run_from_continuing(run: RunWriter) -> None:
    write(run, 1)
    save(run, 1)
    (run.path / "environment.json").write_bytes(b"")
    (run.path / "metrics.jsonl").write_bytes(b"")
    (run.path / "status.json").write_text('{"pids": 3}')
    checkpoint, warnings = run.resume_point()
    assert checkpoint is not None and checkpoint.step == 1
    assert "environment.json is not valid JSON" in warnings[0] and "metrics.jsonl lacks 1 of steps 1-1" in warnings[1]
    with pytest.raises(RunError, match="not the status of a run"):
        run.status()


@pytest.mark.parametrize("line", ['{"step": 1', "[]", '{"reward": 1}'])
def test_a_damaged_line_stops_the_cut_and_is_kept(run: RunWriter, line: str) -> None:
    path = run.path / "metrics.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(RunError, match="repair or delete that line"):
        run.cut(0)
    assert path.read_text() == f"{line}\n"


def test_any_name_makes_one_folder_and_a_place_that_refuses_is_one_line(tmp_path: Path) -> None:
    assert [new_path(name, tmp_path).parent for name in ("../up", "a/b", "", "\n")] == [tmp_path] * 4
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"no run directory can be made in .*file"):
        new_path("count", tmp_path / "file")


def test_half_a_surrogate_pair_is_written_and_read_back() -> None:
    text = {"path": "a\udcffb", "answer": "\ud83d 圆"}
    assert json.loads(durable.dump_json(text)) == text
