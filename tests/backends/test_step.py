"""The shared-prefix step against the plain one: one full forward per datum through transformers, no cache, no padding."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from seegrad.backends.local.sharing import bucket_tops, plan, shared_prefixes
from seegrad.backends.local.step import forward_logprobs, run_step
from seegrad.errors import BackendError, UsageError
from seegrad.families.qwen3_vl import FAMILY
from seegrad.models.base import VLM, load_model
from seegrad.types import Datum, ImageChunk, LossSpec, ModelInput, Reduction, TextChunk
from tests.tinymodel import IMAGE_PAD, image_prompt, picture, text_tokens, tiny_folder

TEMPERATURE = 0.7
LOSS = LossSpec("importance_sampling", {"kl_coef": 0.3}, temperature=TEMPERATURE)


@cache
def model(dtype: torch.dtype = torch.float32) -> VLM:
    vlm = load_model(tiny_folder(), FAMILY, dtype)
    vlm.vision_frozen = False
    vlm.hf.requires_grad_(True)
    return vlm


@pytest.fixture(autouse=True)
def clean_gradients() -> Iterator[None]:
    model().hf.zero_grad()
    model(torch.float64).hf.zero_grad()
    yield


def datum(prompt: ModelInput, completion: Sequence[int], seed: int) -> Datum:
    """A datum with made-up advantages, and old and reference logprobs that are those of the model with noise."""
    draw = np.random.default_rng(seed)
    model_input = prompt + completion[:-1]
    length, start = len(model_input), len(prompt) - 1
    targets = np.zeros(length, np.int64)
    targets[start:] = completion
    mask = np.zeros(length, np.float32)
    mask[start:] = 1
    with torch.no_grad():
        logprobs = plain(model(), Datum(model_input, targets, {})).numpy()
    inputs = {
        "mask": mask,
        "logprobs": (mask * (logprobs + draw.normal(0.0, 0.3, length))).astype(np.float32),
        "ref_logprobs": (mask * (logprobs + draw.normal(0.0, 0.3, length))).astype(np.float32),
        "advantages": (mask * draw.normal(0.3, 1.0)).astype(np.float32),
    }
    return Datum(model_input, targets, inputs)


def batch() -> list[Datum]:
    return list(made_batch())


@cache
def made_batch() -> tuple[Datum, ...]:
    """Groups with one picture, with two, without any; repeated and nested completions; a datum of its own; shuffled."""
    draw = np.random.default_rng(0)
    prompts = [
        image_prompt("how many?", picture(1)),
        image_prompt("how many circles are there?", picture(2, 64, 96), picture(3)),
        ModelInput((TextChunk(text_tokens("only words in here")),)),
        ModelInput((ImageChunk(picture(4), "png", 36),)),
    ]
    datums = []
    for number, prompt in enumerate(prompts):
        for member in range((4, 3, 3, 1)[number]):
            completion = draw.integers(0, 250, draw.integers(1, 12)).tolist()
            datums.append(datum(prompt, completion, 10 * number + member))
    datums.append(datum(prompts[0], [7, 8, 9], 90))
    datums.append(datum(prompts[0], [7, 8, 9, 10, 11], 91))
    datums.append(datum(prompts[0], [7, 8, 9], 92))
    return tuple(datums[index] for index in draw.permutation(len(datums)))


def plain(vlm: VLM, item: Datum) -> torch.Tensor:
    """Logprobs of all targets from one unpadded transformers forward with the library's own positions."""
    ids = torch.tensor([item.model_input.token_ids(IMAGE_PAD)])
    extra = {}
    if item.model_input.images:
        pictures = [Image.open(io.BytesIO(chunk.data)) for chunk in item.model_input.images]
        made = vlm.processor(images=pictures, return_tensors="pt")  # type: ignore[attr-defined]
        types = torch.tensor([[0 if isinstance(chunk, TextChunk) else 1 for chunk in item.model_input.chunks for _ in range(len(chunk))]])
        extra = {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"], "mm_token_type_ids": types}
    vlm.hf.model.rope_deltas = None
    logits = vlm.hf(input_ids=ids, use_cache=False, **extra).logits[0] / TEMPERATURE
    rows = []
    for position, target in enumerate(item.target_tokens_T.tolist()):
        banned = [index for index in vlm.banned_ids.tolist() if index != target]
        row = logits[position].index_fill(0, torch.tensor(banned), -torch.inf)
        rows.append(row.log_softmax(-1)[target])
    return torch.stack(rows)


def plain_step(vlm: VLM, datums: Sequence[Datum]) -> tuple[list[np.ndarray], dict[str, torch.Tensor], float]:
    """Logprobs, gradients and loss of token-mean importance sampling with the k3 term, one datum at a time."""
    count = sum(int(item.inputs["mask"].sum()) for item in datums)
    logprobs, total = [], 0.0
    for item in datums:
        values = plain(vlm, item)
        mask, old, ref, advantage = (torch.from_numpy(item.inputs[name]) for name in ("mask", "logprobs", "ref_logprobs", "advantages"))
        kl = torch.exp(ref - values) - (ref - values) - 1
        loss = ((-torch.exp(values - old) * advantage + 0.3 * kl) * mask).sum() / count
        loss.backward()
        total += loss.item()
        logprobs.append((values * mask).detach().numpy())
    return logprobs, gradients(vlm), total


def gradients(vlm: VLM) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in vlm.hf.named_parameters() if parameter.grad is not None}


def largest_difference(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def largest(first: dict[str, torch.Tensor]) -> float:
    return max(float(gradient.abs().max()) for gradient in first.values())


@cache
def expected() -> tuple[list[np.ndarray], dict[str, torch.Tensor], float]:
    return plain_step(model(), batch())


def compare(vlm: VLM, datums: Sequence[Datum], max_tokens: int = 100_000) -> tuple[float, float]:
    """(largest logprob difference, largest gradient difference) between the shared step on `datums` and the plain step on the true batch."""
    vlm.hf.zero_grad()
    logprobs, wanted, _ = expected()
    vlm.hf.zero_grad()
    output = run_step(vlm, datums, LOSS, max_tokens=max_tokens, backward=True)
    off = max(float(np.abs(a - b).max()) for a, b in zip(output.logprobs_D, logprobs, strict=True))
    return off, largest_difference(gradients(vlm), wanted)


@pytest.mark.parametrize("max_tokens", [100_000, 120, 1])
def test_shared_prefix_equals_one_forward_per_datum(max_tokens: int) -> None:
    off, gradient_off = compare(model(), batch(), max_tokens)
    assert off < 1e-5
    assert gradient_off < 1e-5
    assert largest(expected()[1]) > 1e-2  # there is something to compare


def test_every_parameter_gets_a_gradient() -> None:
    assert expected()[1].keys() == {name for name, _ in model().hf.named_parameters()}


def test_loss_is_that_of_the_plain_step() -> None:
    wanted = expected()[2]
    assert run_step(model(), batch(), LOSS, max_tokens=500, backward=False).metrics["loss"] == pytest.approx(wanted, abs=1e-5)


def test_position_off_by_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    extend = model().extend
    monkeypatch.setattr(model(), "extend", lambda kept, tokens, mask, start: extend(kept, tokens, mask, start + 1))
    off, gradient_off = compare(model(), batch())
    assert off > 1e-4 and gradient_off > 1e-4


def test_swapped_image_rows_are_noticed() -> None:
    def swap(item: Datum) -> Datum:
        pictures = {picture(1): picture(3), picture(3): picture(1)}
        chunks = tuple(
            dataclasses.replace(chunk, data=pictures.get(chunk.data, chunk.data)) if isinstance(chunk, ImageChunk) else chunk
            for chunk in item.model_input.chunks
        )
        return dataclasses.replace(item, model_input=ModelInput(chunks))

    off, gradient_off = compare(model(), [swap(item) for item in batch()])
    assert off > 1e-4 and gradient_off > 1e-4


def test_unmasked_prompt_is_noticed() -> None:
    def unmask(item: Datum) -> Datum:
        return dataclasses.replace(item, inputs={**item.inputs, "mask": np.ones(len(item), np.float32)})

    off, gradient_off = compare(model(), [unmask(item) for item in batch()])
    assert off > 1e-4 and gradient_off > 1e-4


def test_kept_banned_mass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model(), "banned_ids", model().banned_ids[:0])
    off, gradient_off = compare(model(), batch())
    assert off > 1e-4 and gradient_off > 1e-4


def test_wrong_cache_rows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from seegrad.backends.local import step

    select = step.select_rows
    monkeypatch.setattr(step, "select_rows", lambda kept, rows: select(kept, rows.roll(1)))
    off, gradient_off = compare(model(), batch())
    assert off > 1e-4 and gradient_off > 1e-4


@pytest.mark.parametrize("reduction", ["sum", "token_mean", "sequence_mean"])
def test_micro_batches_of_one_equal_one_of_eight(reduction: Reduction) -> None:
    """In float64, so that only the arithmetic of the split is compared, not the order of float32 sums."""
    datums, loss, vlm = batch()[:8], dataclasses.replace(LOSS, reduction=reduction), model(torch.float64)
    whole = run_step(vlm, datums, loss, max_tokens=100_000, backward=True)
    together = gradients(vlm)
    vlm.hf.zero_grad()
    parts = run_step(vlm, datums, loss, max_tokens=1, backward=True)
    assert largest_difference(together, gradients(vlm)) < 1e-6 * max(1.0, largest(together))
    assert parts.metrics == pytest.approx(dict(whole.metrics), rel=1e-5)
    # Planted: each part with a denominator of its own, averaged over the parts as a loop over micro-batches would.
    vlm.hf.zero_grad()
    for item in datums:
        run_step(vlm, [item], loss, max_tokens=100_000, backward=True)
    averaged = {name: gradient / (1 if reduction == "sum" else len(datums)) for name, gradient in gradients(vlm).items()}
    assert (largest_difference(together, averaged) > 1e-4) == (reduction == "token_mean")


@pytest.mark.parametrize("reduction", ["sum", "token_mean", "sequence_mean"])
def test_parts_with_a_denominator_equal_the_whole(reduction: Reduction) -> None:
    datums, vlm = batch()[:8], model(torch.float64)
    count = {"sum": 1, "token_mean": sum(int(item.active_T.sum()) for item in datums), "sequence_mean": 8}[reduction]
    loss = dataclasses.replace(LOSS, reduction=reduction)
    run_step(vlm, datums, loss, max_tokens=100_000, backward=True)
    together = gradients(vlm)
    vlm.hf.zero_grad()
    given = dataclasses.replace(loss, denominator=float(count))
    for part in (datums[:3], datums[3:]):
        run_step(vlm, part, given, max_tokens=100_000, backward=True)
    assert largest_difference(together, gradients(vlm)) < 1e-6 * max(1.0, largest(together))


@pytest.mark.parametrize(
    "make", [list, lambda: [dataclasses.replace(item, inputs={**item.inputs, "mask": np.zeros(len(item), np.float32)}) for item in batch()]]
)
def test_nothing_active_gives_zero(make: Callable[[], list[Datum]]) -> None:
    datums = make()
    for backward in (True, False):
        output = run_step(model(), datums, LOSS, max_tokens=1000, backward=backward)
        assert output.metrics["loss"] == 0.0 and not any(np.isnan(value) for value in output.metrics.values())
        assert all(not values.any() for values in output.logprobs_D + output.entropy_D)
        assert [len(values) for values in output.logprobs_D] == [len(item) for item in datums]
    assert not gradients(model())


def test_constant_length_divides_every_sequence_by_the_same_number() -> None:
    datums = batch()[:6]
    total = run_step(model(), datums, dataclasses.replace(LOSS, reduction="sum"), max_tokens=1000, backward=False).metrics["loss"]
    constant = dataclasses.replace(LOSS, reduction="constant_length", length=20.0)
    assert run_step(model(), datums, constant, max_tokens=300, backward=False).metrics["loss"] == pytest.approx(total / 20 / 6, rel=1e-5)
    parts = [dataclasses.replace(constant, denominator=6.0)]
    halves = sum(run_step(model(), half, parts[0], max_tokens=300, backward=False).metrics["loss"] for half in (datums[:2], datums[2:]))
    assert halves == pytest.approx(total / 20 / 6, rel=1e-5)
    with pytest.raises(UsageError, match="'constant_length' needs a length above 0"):
        run_step(model(), datums, dataclasses.replace(constant, length=None), max_tokens=300, backward=False)


def test_entropy_bonus_has_the_gradient_of_the_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with autograd through one plain forward; also when the logits are made in chunks."""
    item = next(item for item in batch() if not item.model_input.images)
    vlm = model()
    spec = LossSpec("cross_entropy", {"entropy_coef": 0.5}, "sum", temperature=TEMPERATURE)
    plain_spec = LossSpec("cross_entropy", {}, "sum", temperature=TEMPERATURE)

    def gradient_of(loss: LossSpec) -> dict[str, torch.Tensor]:
        vlm.hf.zero_grad()
        run_step(vlm, [item], loss, max_tokens=1000, backward=True)
        return gradients(vlm)

    with_bonus, without = gradient_of(spec), gradient_of(plain_spec)
    monkeypatch.setattr("seegrad.models.base._LOGIT_CELLS", vlm.vocabulary_size * 2)
    assert largest_difference(gradient_of(spec), with_bonus) < 1e-4
    vlm.hf.zero_grad()
    ids = torch.tensor([item.model_input.token_ids(IMAGE_PAD)])
    logits = vlm.hf(input_ids=ids).logits[0].float() / TEMPERATURE
    logits = logits[torch.from_numpy(item.active_T)]
    logits[:, vlm.banned_ids] = -1e9
    logprobs = logits.log_softmax(-1)
    (0.5 * (logprobs.exp() * logprobs).sum()).backward()
    wanted = gradients(vlm)
    difference = {name: with_bonus[name] - without[name] for name in wanted}
    assert largest(wanted) > 1e-2
    assert largest_difference(difference, wanted) < 1e-4


@pytest.mark.parametrize("estimator", ["k2", "k3_unbiased"])
def test_the_kl_term_uses_the_estimator_that_is_asked_for(estimator: str) -> None:
    datums = batch()[:4]
    loss = dataclasses.replace(LOSS, kl_estimator=estimator)
    first, second = (run_step(model(), datums, spec, max_tokens=1000, backward=False).metrics for spec in (LOSS, loss))
    assert (abs(first["kl"] - second["kl"]) > 1e-6) == (estimator == "k2")
    assert second["loss"] - first["loss"] == pytest.approx(0.3 * (second["kl"] - first["kl"]), abs=1e-6)
    with pytest.raises(UsageError, match="k1 has no gradient in a loss"):
        run_step(model(), datums, dataclasses.replace(LOSS, kl_estimator="k1"), max_tokens=1000, backward=False)


def test_a_masked_datum_changes_nothing() -> None:
    datums = batch()[:5]
    masked = dataclasses.replace(datums[0], inputs={**datums[0].inputs, "mask": np.zeros(len(datums[0]), np.float32)})
    for reduction in ("sum", "token_mean", "sequence_mean"):
        loss = dataclasses.replace(LOSS, reduction=reduction)
        first = run_step(model(), datums, loss, max_tokens=1000, backward=False).metrics
        assert run_step(model(), [*datums, masked], loss, max_tokens=1000, backward=False).metrics == pytest.approx(dict(first), rel=1e-5)


def test_metrics_are_those_of_the_definitions() -> None:
    output = run_step(model(), batch(), dataclasses.replace(LOSS, name="ppo"), max_tokens=300, backward=False)
    new, old, ref, advantages, mask = (
        np.concatenate(arrays).astype(np.float64)
        for arrays in (output.logprobs_D, *([item.inputs[name] for item in batch()] for name in ("logprobs", "ref_logprobs", "advantages", "mask")))
    )
    new, old, ref, advantages = (values[mask > 0] for values in (new, old, ref, advantages))
    ratio = np.exp(new - old)
    clipped = ((advantages > 0) & (ratio > 1.2)) | ((advantages < 0) & (ratio < 0.8))
    wanted = {
        "kl": np.mean(np.exp(ref - new) - (ref - new) - 1),
        "sampler_kl": np.mean(ratio - np.log(ratio) - 1),
        "ratio_mean": np.mean(ratio),
        "ratio_max_deviation": np.max(np.abs(new - old)),
        "clip_fraction": np.mean(clipped),
        "entropy": np.mean(np.concatenate(output.entropy_D)[mask > 0]),
        "num_tokens": mask.sum(),
    }
    assert 0 < np.mean(clipped) < 1
    assert {name: output.metrics[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)


def test_a_placeholder_inside_a_completion_is_plain_text() -> None:
    prompt = image_prompt("how many?", picture(1))
    items = []
    for last in (7, 8):
        completion = [5, IMAGE_PAD, 6, last]
        model_input = prompt + completion[:-1]
        targets = np.array([0] * (len(prompt) - 1) + completion)
        items.append(Datum(model_input, targets, {"mask": (targets > 0).astype(np.float32)}))
    shared = forward_logprobs(model(), items, 1.0, 1000)
    alone = [forward_logprobs(model(), [item], 1.0, 1000)[0] for item in items]
    for first, second in zip(shared, alone, strict=True):
        assert np.isfinite(first).all()
        np.testing.assert_allclose(first, second, atol=1e-5)


def test_a_loss_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def half(logprobs_T, inputs, config):\n    return -config['scale'] * logprobs_T, {'seen': inputs['sequence'].float() * 0 + 2}\n")
    output = run_step(model(), batch(), LossSpec(f"{path}:half", {"scale": 0.5}), max_tokens=1000, backward=False)
    plain_loss = run_step(model(), batch(), LossSpec("cross_entropy"), max_tokens=1000, backward=False)
    assert output.metrics["loss"] == pytest.approx(plain_loss.metrics["loss"] / 2)
    assert output.metrics["seen"] == pytest.approx(2.0)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    bare = [dataclasses.replace(item, inputs={"mask": item.inputs["mask"]}) for item in batch()]
    path = tmp_path / "bad.py"
    path.write_text("def summed(lp, inputs, config):\n    return lp.sum()\ndef raising(lp, inputs, config):\n    return 1 / 0\n")
    cases: list[tuple[list[Datum], LossSpec, type[Exception], str]] = [
        (bare, LossSpec("ppo"), UsageError, "loss 'ppo' needs the input 'logprobs' in every datum, given: mask"),
        (bare, LossSpec("cross_entropy", {"kl_coef": 0.1}), UsageError, "kl_coef=0.1 needs the input 'ref_logprobs'"),
        ([bare[0], *batch()[1:]], LossSpec("ppo"), UsageError, "same inputs"),
        (batch(), LossSpec("ppo", {"clip_hgih": 0.1}), UsageError, "did you mean 'clip_high'"),
        (batch(), LossSpec("ppo", temperature=0.0), UsageError, "temperature above 0"),
        (batch(), LossSpec("ppo", denominator=0.0), UsageError, "denominator above 0"),
        (batch(), LossSpec(f"{path}:summed"), BackendError, "must return one loss per token"),
        (batch(), LossSpec(f"{path}:raising"), BackendError, "raised ZeroDivisionError"),
        ([dataclasses.replace(item, target_tokens_T=item.target_tokens_T + 5000) for item in batch()], LOSS, BackendError, "vocabulary is 0 to"),
    ]
    for datums, loss, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            run_step(model(), datums, loss, max_tokens=100_000, backward=False)
        assert "\n" not in str(caught.value)


def test_groups_are_found_by_content() -> None:
    datums = batch()
    prefixes = shared_prefixes(datums, [len(item) for item in datums], IMAGE_PAD)
    assert sorted(member.datum for prefix in prefixes for member in prefix.members) == list(range(len(datums)))
    for prefix in prefixes:
        for member in prefix.members:
            assert len(prefix.model_input) == prefix.length
            whole = prefix.model_input + member.suffix
            assert whole == datums[member.datum].model_input
    with_picture = [prefix for prefix in prefixes if any(chunk.data == picture(1) for chunk in prefix.model_input.images)]
    assert len(with_picture) == 1 and len(with_picture[0].members) == 7


def test_two_questions_with_the_same_opening_are_two_groups() -> None:
    opening = text_tokens("the same long opening. ")
    prompts = [ModelInput((TextChunk((*opening, *text_tokens(question * 20))),)) for question in "ab"]
    datums = [datum(prompts[index % 2], [index, 1], index) for index in range(6)]
    prefixes = shared_prefixes(datums, [len(item) for item in datums], IMAGE_PAD)
    assert sorted(sorted(member.datum for member in prefix.members) for prefix in prefixes) == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("max_tokens", [1, 60, 130, 300, 100_000])
def test_micro_batches_keep_every_datum_and_the_budget(max_tokens: int) -> None:
    datums = batch()
    prefixes = shared_prefixes(datums, [len(item) for item in datums], IMAGE_PAD)
    micro_batches = plan(prefixes, max_tokens)
    seen = [member.datum for micro in micro_batches for prefix in micro for member in prefix.members]
    assert sorted(seen) == list(range(len(datums)))
    for micro in micro_batches:
        members = [member for prefix in micro for member in prefix.members]
        cells = len(micro) * max(prefix.length for prefix in micro) + sum(len(member.suffix) for member in members)
        assert cells <= max_tokens or len(members) == 1


def test_buckets_save_padding_only_where_it_pays() -> None:
    assert bucket_tops([5, 6, 7]) == {5: 7, 6: 7, 7: 7}
    assert bucket_tops([0, 10, 10, 500]) == {0: 0, 10: 10, 500: 500}
    lengths = list(range(1, 400)) * 3
    tops = bucket_tops(lengths)
    assert all(tops[length] >= length for length in lengths)
    assert sum(tops[length] for length in lengths) < 1.2 * sum(lengths)
