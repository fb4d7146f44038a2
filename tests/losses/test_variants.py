"""The losses beyond PPO, each against a slow reference in plain Python floats: values, and gradients by finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from seegrad import registry
from seegrad.errors import UsageError
from seegrad.losses.kl import ESTIMATORS, k1, k2, k3, k3_unbiased

LENGTHS = (1, 7, 30, 2)  # tokens of each completion


def draws(seed: int, spread: float) -> dict[str, Tensor]:
    """Four completions with one advantage each, of both signs, and logprobs that have moved by about `spread`."""
    draw = np.random.default_rng(seed)
    old = draw.normal(-2.0, 1.0, sum(LENGTHS))
    values = {
        "new": old + draw.normal(0.0, spread, len(old)),
        "logprobs": old,
        "advantages": np.repeat([1.5, -1.0, 0.5, -2.0], LENGTHS),
    }
    tensors = {name: torch.tensor(array, dtype=torch.float64) for name, array in values.items()}
    return {**tensors, "sequence": torch.tensor(np.repeat(np.arange(len(LENGTHS)), LENGTHS))}


# Each reference maps (new, old, advantages) of ONE completion to the losses of its tokens.
Reference = Callable[[list[float], list[float], list[float]], list[float]]


def tokenwise(function: Callable[[float, float, float], float]) -> Reference:
    return lambda new, old, advantages: [function(*at) for at in zip(new, old, advantages, strict=True)]


def clip(ratio: float, advantage: float, low: float, high: float) -> float:
    return -advantage * (min(ratio, high) if advantage >= 0 else max(ratio, low))


def slow_sapo(new: float, old: float, advantage: float, positive: float = 1.0, negative: float = 1.05) -> float:
    tau = positive if advantage > 0 else negative
    return -advantage * 4 / tau / (1 + math.exp(-tau * (math.exp(new - old) - 1)))


def slow_gspo(low: float = 1 - 3e-4, high: float = 1 + 4e-4) -> Reference:
    def losses(new: list[float], old: list[float], advantages: list[float]) -> list[float]:
        ratio = math.exp(sum(a - b for a, b in zip(new, old, strict=True)) / len(new))
        return [clip(ratio, advantage, low, high) for advantage in advantages]

    return losses


CASES: list[tuple[str, Mapping[str, float], float, Reference]] = [
    ("dapo", {}, 0.5, tokenwise(lambda new, old, a: clip(math.exp(new - old), a, 0.8, 1.28))),
    ("dr_grpo", {"clip_high": 0.5}, 0.5, tokenwise(lambda new, old, a: clip(math.exp(new - old), a, 0.8, 1.5))),
    ("ppo", {"clip_low_threshold": 0.7, "clip_high_threshold": 1.1}, 0.5, tokenwise(lambda new, old, a: clip(math.exp(new - old), a, 0.7, 1.1))),
    ("sapo", {}, 0.5, tokenwise(slow_sapo)),
    ("sapo", {"tau_positive": 2.0, "tau_negative": 0.5}, 0.5, tokenwise(lambda new, old, a: slow_sapo(new, old, a, 2.0, 0.5))),
    ("dro", {"beta": 0.3}, 0.5, tokenwise(lambda new, old, a: -(new * a - 0.15 * (new - old) ** 2))),
    ("gspo", {}, 3e-4, slow_gspo()),
    ("gspo", {"clip_low": 0.1, "clip_high": 0.2}, 0.4, slow_gspo(0.9, 1.2)),
]


def pieces(values: Mapping[str, Tensor]) -> list[slice]:
    ends = np.cumsum(LENGTHS)
    return [slice(int(end) - length, int(end)) for end, length in zip(ends, LENGTHS, strict=True)]


def slow(reference: Reference, new: list[float], values: Mapping[str, Tensor]) -> list[float]:
    old, advantages = values["logprobs"].tolist(), values["advantages"].tolist()
    return [loss for part in pieces(values) for loss in reference(new[part], old[part], advantages[part])]


@pytest.mark.parametrize(("name", "config", "spread", "reference"), CASES, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(CASES)])
def test_value_and_gradient_equal_the_slow_reference(name: str, config: Mapping[str, float], spread: float, reference: Reference) -> None:
    values = draws(5, spread)
    new = values["new"].clone().requires_grad_()
    result = registry.load("loss", name)(new, values, config)
    loss = result[0] if isinstance(result, tuple) else result
    at = values["new"].tolist()
    assert loss.tolist() == pytest.approx(slow(reference, at, values), abs=1e-12)
    loss.sum().backward()
    assert new.grad is not None and new.grad.abs().max() > 0.1
    step = 1e-7
    for index in range(len(at)):
        up, down = list(at), list(at)
        up[index] += step
        down[index] -= step
        slope = (sum(slow(reference, up, values)) - sum(slow(reference, down, values))) / (2 * step)
        assert new.grad[index].item() == pytest.approx(slope, abs=1e-5)


def test_the_comparison_notices_another_bound_and_a_ratio_per_token() -> None:
    values = draws(5, 0.5)
    at = values["new"].tolist()
    wrong = slow(tokenwise(lambda new, old, a: clip(math.exp(new - old), a, 0.8, 1.2)), at, values)
    assert registry.load("loss", "dapo")(values["new"], values, {})[0].tolist() != pytest.approx(wrong, abs=1e-12)
    assert registry.load("loss", "gspo")(values["new"], values, {"clip_high": 0.28, "clip_low": 0.2})[0].tolist() != pytest.approx(wrong, abs=1e-6)


def test_cispo_weighs_the_plain_gradient_and_never_removes_it() -> None:
    values = draws(6, 1.0)
    new = values["new"].clone().requires_grad_()
    loss, parts = registry.load("loss", "cispo")(new, values, {"clip_low_threshold": 0.5, "clip_high_threshold": 1.5})
    loss.sum().backward()
    assert new.grad is not None
    clipped = 0
    for index, (now, old, advantage) in enumerate(
        zip(values["new"].tolist(), values["logprobs"].tolist(), values["advantages"].tolist(), strict=True)
    ):
        weight = min(max(math.exp(now - old), 0.5), 1.5)
        assert loss[index].item() == pytest.approx(-weight * advantage * now, abs=1e-12)
        assert new.grad[index].item() == pytest.approx(-weight * advantage, abs=1e-12)
        assert parts["clip_fraction"][index].item() == float(weight in (0.5, 1.5))
        clipped += weight in (0.5, 1.5)
    assert 0 < clipped < len(new)
    wide = registry.load("loss", "cispo")(values["new"], values, {"clip_low": 0.5, "clip_high": 0.5})[0]
    assert torch.equal(wide, registry.load("loss", "cispo")(values["new"], values, {"clip_low_threshold": 0.5, "clip_high_threshold": 1.5})[0])


def test_gspo_token_has_the_value_of_gspo_and_its_gradient_for_equal_advantages() -> None:
    values = draws(11, 2e-3)
    both = []
    for name in ("gspo", "gspo_token"):
        new = values["new"].clone().requires_grad_()
        loss, parts = registry.load("loss", name)(new, values, {})
        loss.sum().backward()
        assert new.grad is not None
        both.append((loss.detach(), new.grad, parts["clip_fraction"]))
    for first, second in zip(*both, strict=True):
        assert torch.allclose(first, second, atol=1e-12)
    assert 0 < both[0][2].mean() < 1


def test_gspo_token_follows_each_tokens_own_advantage() -> None:
    values = draws(8, 1e-5)
    values["advantages"] = torch.linspace(-1, 1, sum(LENGTHS), dtype=torch.float64)
    new = values["new"].clone().requires_grad_()
    registry.load("loss", "gspo_token")(new, values, {})[0].sum().backward()
    assert new.grad is not None
    assert torch.allclose(new.grad, -values["advantages"], atol=1e-3)


@pytest.mark.parametrize("name", ["ppo", "cispo", "dapo", "dr_grpo", "dro", "gspo", "gspo_token", "sapo"])
def test_on_policy_every_loss_has_the_plain_gradient(name: str) -> None:
    """At r = 1 all are the policy gradient (GSPO spreads it evenly over a completion, whose advantage is one number)."""
    values = draws(9, 0.0)
    new = values["logprobs"].clone().requires_grad_()
    result = registry.load("loss", name)(new, values, {})
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    assert new.grad is not None
    assert torch.allclose(new.grad, -values["advantages"], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("ppo", {"clip_low": 0.2, "clip_low_threshold": 0.8}, "give one: the distance from 1, or the ratio"),
        ("cispo", {"clip_high_threshold": 0.9}, "an upper one of at least 1"),
        ("gspo", {"clip_low": -0.1}, "lower bound from 0 to 1"),
        ("gspo_token", {"clip_hihg": 0.1}, "did you mean 'clip_high'"),
        ("sapo", {"tau_negative": 0.0}, "tau_negative above 0"),
        ("dro", {"beta": -1.0}, "beta of at least 0"),
        ("dapo", {"dual_clip": 1.0}, "dual_clip above 1"),
    ],
)
def test_wrong_settings_are_one_line(name: str, config: Mapping[str, float], words: str) -> None:
    values = draws(0, 0.1)
    with pytest.raises(UsageError, match=words):
        registry.load("loss", name)(values["new"], values, config)


def test_kl_estimators_are_their_formulas_and_estimate_the_divergence() -> None:
    draw = np.random.default_rng(4)
    p, q = draw.dirichlet(np.ones(40)), draw.dirichlet(np.ones(40))
    log_p, log_q = torch.tensor(np.log(p)), torch.tensor(np.log(q))
    divergence = float((p * np.log(p / q)).sum())
    for estimator in (k1, k3, k3_unbiased):  # k2 is biased
        assert float((torch.tensor(p) * estimator(log_p, log_q)).sum()) == pytest.approx(divergence)
    assert k2(log_p, log_q).tolist() == pytest.approx([math.log(a / b) ** 2 / 2 for a, b in zip(p, q, strict=True)])
    assert set(ESTIMATORS) == {"k1", "k2", "k3", "k3_unbiased"}


def expected_gradient(estimator: Callable[[Tensor, Tensor], Tensor], logits: Tensor, other: Tensor) -> Tensor:
    """Gradient through the logprobs only, averaged over tokens drawn from p: what a loss sees on fresh samples."""
    moving = logits.clone().requires_grad_()
    log_p = moving.log_softmax(-1)
    (log_p.detach().exp() * estimator(log_p, other.log_softmax(-1))).sum().backward()
    assert moving.grad is not None
    return moving.grad


def test_which_estimators_have_the_gradient_of_the_divergence() -> None:
    draw = np.random.default_rng(5)
    logits, other = (torch.tensor(draw.normal(size=12)) for _ in range(2))
    moving = logits.clone().requires_grad_()
    log_p, log_q = moving.log_softmax(-1), other.log_softmax(-1)
    (log_p.exp() * (log_p - log_q)).sum().backward()
    for estimator in (k2, k3_unbiased):
        assert torch.allclose(expected_gradient(estimator, logits, other), moving.grad, atol=1e-12)  # type: ignore[arg-type]
    assert not torch.allclose(expected_gradient(k3, logits, other), moving.grad, atol=1e-2)  # type: ignore[arg-type]
    assert expected_gradient(k1, logits, other).abs().max() < 1e-12
