"""Every loss against a slow reference in plain Python floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from seegrad.errors import UsageError
from seegrad.losses.kl import k3
from seegrad.losses.policy import importance_sampling, ppo
from seegrad.losses.supervised import cross_entropy

COUNT = 400


def draws(seed: int = 0) -> dict[str, Tensor]:
    """Old and new logprobs, advantages of both signs and zero, weights."""
    draw = np.random.default_rng(seed)
    old = draw.normal(-2.0, 1.0, COUNT)
    values = {
        "new": old + draw.normal(0.0, 0.6, COUNT),
        "logprobs": old,
        "advantages": draw.choice([-2.0, -0.5, 0.0, 0.5, 2.0], COUNT) + draw.normal(0, 0.1, COUNT) * draw.integers(0, 2, COUNT),
        "weights": draw.uniform(0, 2, COUNT),
    }
    return {name: torch.tensor(array, dtype=torch.float64) for name, array in values.items()}


def slow_ppo(new: float, old: float, advantage: float, low: float, high: float, dual: float) -> float:
    """The objective by its cases: what is gained stops growing beyond the bounds, and with a dual clip losses stop growing as well."""
    ratio = math.exp(new - old)
    if advantage >= 0:
        return -advantage * min(ratio, 1 + high)
    worst = -advantage * max(ratio, 1 - low)
    return min(worst, -advantage * dual) if dual else worst


def slow_gradient(function: object, new: float, *rest: float) -> float:
    step = 1e-6
    return (function(new + step, *rest) - function(new - step, *rest)) / (2 * step)  # type: ignore[operator]


@pytest.mark.parametrize(("low", "high", "dual"), [(0.2, 0.2, 0.0), (0.2, 0.28, 0.0), (0.1, 0.3, 1.5), (0.0, 0.0, 3.0)])
def test_ppo_equals_the_slow_reference(low: float, high: float, dual: float) -> None:
    values = draws()
    new = values["new"].requires_grad_()
    loss, parts = ppo(new, values, {"clip_low": low, "clip_high": high, "dual_clip": dual})
    loss.sum().backward()
    assert new.grad is not None
    removed = 0
    for index in range(COUNT):
        at = (new[index].item(), values["logprobs"][index].item(), values["advantages"][index].item())
        assert loss[index].item() == pytest.approx(slow_ppo(*at, low, high, dual), abs=1e-12)
        slope = slow_gradient(slow_ppo, *at, low, high, dual)
        assert new.grad[index].item() == pytest.approx(slope, abs=1e-6)
        assert parts["clip_fraction"][index].item() == float(at[2] != 0 and slope == 0)
        removed += at[2] != 0 and slope == 0
    assert 0.1 < removed / COUNT < 0.9


def test_ppo_defaults_and_wrong_settings() -> None:
    values = draws()
    assert torch.equal(ppo(values["new"], values, {})[0], ppo(values["new"], values, {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0})[0])
    for config, words in [
        ({"clip_low": 1.1}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"dual_clip": 0.5}, "dual_clip above 1"),
        ({"clip": 0.2}, "no setting 'clip'"),
    ]:
        with pytest.raises(UsageError, match=words):
            ppo(values["new"], values, config)


def test_importance_sampling_equals_the_slow_reference() -> None:
    values = draws(1)
    new = values["new"].requires_grad_()
    loss = importance_sampling(new, values, {})
    loss.sum().backward()
    assert new.grad is not None
    for index in range(COUNT):
        wanted = -math.exp(new[index].item() - values["logprobs"][index].item()) * values["advantages"][index].item()
        assert loss[index].item() == pytest.approx(wanted, abs=1e-12)
        assert new.grad[index].item() == pytest.approx(wanted, abs=1e-12)  # exp is its own derivative
    with pytest.raises(UsageError, match="it has no settings"):
        importance_sampling(new, values, {"clip_low": 0.2})


def test_on_policy_all_policy_losses_have_the_plain_gradient() -> None:
    values = draws(2)
    for loss in (importance_sampling, ppo):
        new = values["logprobs"].clone().requires_grad_()
        result = loss(new, values, {})
        (result[0] if isinstance(result, tuple) else result).sum().backward()
        assert new.grad is not None
        assert torch.allclose(new.grad, -values["advantages"])


def test_cross_entropy_weighs_tokens() -> None:
    values = draws(3)
    loss = cross_entropy(values["new"], values, {})
    for index in range(COUNT):
        assert loss[index].item() == pytest.approx(-values["new"][index].item() * values["weights"][index].item(), abs=1e-12)
    assert torch.equal(cross_entropy(values["new"], {}, {}), -values["new"])


def test_k3_estimates_the_divergence() -> None:
    """Weighted by p it is KL(p‖q) exactly; each term is the slow formula and never negative; equal distributions give 0."""
    draw = np.random.default_rng(4)
    p, q = draw.dirichlet(np.ones(50)), draw.dirichlet(np.ones(50))
    terms = k3(torch.tensor(np.log(p)), torch.tensor(np.log(q)))
    for index in range(50):
        assert terms[index].item() == pytest.approx(q[index] / p[index] - math.log(q[index] / p[index]) - 1, abs=1e-12)
    assert float(terms.min()) >= 0
    assert float((torch.tensor(p) * terms).sum()) == pytest.approx(float((p * np.log(p / q)).sum()))
    assert not k3(torch.tensor(np.log(p)), torch.tensor(np.log(p))).any()
