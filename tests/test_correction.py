"""The correction of a sampler that is not the trainer: each method against a slow reference, the numbers against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seegrad.correction import SETTINGS, Correction, corrected, mismatch
from seegrad.errors import UsageError
from seegrad.types import Datum, ModelInput, TextChunk


def slow_weights(method: str, trainer: list[float], sampler: list[float], low: float, high: float, cap: float) -> list[float]:
    ratios = [math.exp(a - b) for a, b in zip(trainer, sampler, strict=True)]
    product = math.prod(ratios)
    if method == "tis":
        return [min(ratio, cap) for ratio in ratios]
    if method == "icepop":
        return [ratio if low <= ratio <= high else 0.0 for ratio in ratios]
    if method == "sequence_tis":
        return [min(product, cap)] * len(ratios)
    if method == "sequence_mask":
        return [product if product <= cap else 0.0] * len(ratios)
    if method == "geometric_mask":
        return [1.0 if low <= product ** (1 / len(ratios)) <= high else 0.0] * len(ratios)
    return [1.0] * len(ratios)


@pytest.mark.parametrize("method", sorted(SETTINGS))
@pytest.mark.parametrize("spread", [0.02, 0.3, 1.5])
def test_weights_equal_the_slow_reference(method: str, spread: float) -> None:
    draw = np.random.default_rng(int(spread * 100))
    decided = 0
    for length in (1, 2, 9, 40):
        sampler = draw.normal(-2, 1, length)
        trainer = sampler + draw.normal(0, spread, length)
        settings = {"low": 0.5, "high": 5.0, "cap": 2.0, **SETTINGS[method]}
        weights, changed = Correction(method).weights(trainer, sampler)
        assert weights.tolist() == pytest.approx(slow_weights(method, trainer.tolist(), sampler.tolist(), **settings), rel=1e-9)
        assert weights.shape == changed.shape == (length,)
        decided += int(changed.sum())
    if spread == 1.5:
        assert (decided > 0) == (method != "none")


def test_a_cap_and_a_mask_are_noticed_when_they_are_off() -> None:
    trainer, sampler = np.array([0.0, 1.0]), np.array([0.0, 0.0])
    assert Correction("tis").weights(trainer, sampler)[0].tolist() == [1.0, 2.0]
    assert Correction("tis", {"cap": 3.0}).weights(trainer, sampler)[0].tolist() == pytest.approx([1.0, math.e])
    assert Correction("icepop", {"high": 2.0}).weights(trainer, sampler)[0].tolist() == [1.0, 0.0]


def test_a_hopeless_gap_stays_finite() -> None:
    for method in SETTINGS:
        weights, _ = Correction(method).weights(np.array([0.0, -1e4]), np.array([-1e4, 0.0]))
        assert np.isfinite(weights).all()


def datum(prompt: int, logprobs: list[float], advantage: float) -> Datum:
    length = prompt + len(logprobs)
    values = {name: np.zeros(length, np.float32) for name in ("logprobs", "advantages", "mask")}
    values["logprobs"][prompt:], values["advantages"][prompt:], values["mask"][prompt:] = logprobs, advantage, 1
    return Datum(ModelInput((TextChunk(tuple(range(length))),)), np.arange(length), values)


def test_datums_get_the_trainers_logprobs_and_weighted_advantages() -> None:
    datums = [datum(2, [-1.0, -2.0], 1.0), datum(3, [-0.5], -2.0)]
    recomputed = [np.array([9, 9, -1.0, -1.0], np.float32), np.array([9, 9, 9, -0.7], np.float32)]
    made, numbers = corrected(datums, recomputed, Correction("tis", {"cap": 2.0}))
    assert made[0].inputs["logprobs"].tolist() == [0, 0, -1, -1]
    assert made[0].inputs["advantages"].tolist() == [0, 0, 1, 2]
    assert made[1].inputs["advantages"][-1] == pytest.approx(-2 * math.exp(-0.2))
    assert numbers["mismatch/clipped"] == pytest.approx(1 / 3)
    assert [item.inputs["mask"].tolist() for item in made] == [item.inputs["mask"].tolist() for item in datums]
    plain, off = corrected(datums, recomputed, Correction())
    assert plain[0].inputs["advantages"].tolist() == [0, 0, 1, 1] and "mismatch/clipped" not in off


def test_numbers_are_over_the_whole_batch() -> None:
    datums = [datum(2, [-1.0, -2.0], 1.0), datum(3, [-0.5], -2.0)]
    recomputed = [np.array([9, 9, -1.1, -1.6], np.float32), np.array([9, 9, 9, -0.7], np.float32)]
    gaps = [-0.1, 0.4, -0.2]
    ratios = [math.exp(gap) for gap in gaps]
    numbers = mismatch(datums, recomputed)
    assert numbers == pytest.approx(
        {
            "actor/rollout_train_kl": 0.7 / 3,
            "mismatch/mean_abs": 0.7 / 3,
            "mismatch/max": 0.4,
            "mismatch/k1": -0.1 / 3,
            "mismatch/k3": sum(ratio - gap - 1 for ratio, gap in zip(ratios, gaps, strict=True)) / 3,
            "mismatch/effective_sample_size": sum(ratios) ** 2 / (3 * sum(ratio**2 for ratio in ratios)),
        },
        rel=1e-5,
    )
    assert mismatch([], []) == {} and corrected([], [], Correction("tis")) == ([], {})


@pytest.mark.parametrize(
    ("method", "config", "words"),
    [
        ("tsi", {}, "did you mean 'tis'"),
        ("tis", {"capp": 2.0}, "did you mean 'cap'"),
        ("none", {"cap": 2.0}, "it has no settings"),
        ("tis", {"cap": 0.0}, "cap above 0"),
        ("icepop", {"low": 1.5}, "low ≤ 1 ≤ high"),
    ],
)
def test_wrong_settings_are_one_line(method: str, config: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Correction(method, config)
