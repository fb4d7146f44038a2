"""From the rewards of a step to the credit of each attempt.

A function says by the name of its parameter what it wants: `rewards_G` (one group at a time), `rewards_PG` (all groups of a step) or `scores_PG` and
`weights` (all groups, each reward part apart). Other parameters are settings (`algorithm.advantage_config`). It returns advantages of the same shape.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seegrad.errors import UsageError, nearest
from seegrad.types import Floats

EPS = 1e-6  # added to a standard deviation
_INPUTS = ("rewards_G", "rewards_PG", "scores_PG", "weights")
_SIGNS = ("positive", "negative")  # settings of every function

Scores = Mapping[str, Floats]  # reward part → its unweighted values in one group


def mean(rewards_G: Floats) -> Floats:
    """Reward minus the mean of the group (GRPO without division by the deviation, as in Dr. GRPO, arXiv 2503.20783, section 3.2).

    >>> mean(np.array([1, 0, 0, 1], np.float32)).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return _centred(rewards_G).astype(np.float32)


def mean_std(rewards_G: Floats) -> Floats:
    """Reward minus the mean, divided by (population standard deviation + 1e-6) of the group (GRPO, arXiv 2402.03300, section 4.1.2)."""
    centred = _centred(rewards_G)
    deviation = float(np.sqrt(np.mean(centred**2)))
    return (centred / (deviation + EPS)).astype(np.float32)


def leave_one_out(rewards_G: Floats) -> Floats:
    """Reward minus the mean of the OTHER attempts (RLOO, arXiv 2402.14740, section 3); that is G/(G − 1) times `mean`."""
    centred = _centred(rewards_G)
    return (centred * (len(centred) / max(len(centred) - 1, 1))).astype(np.float32)


def batch_std(rewards_PG: Sequence[Floats]) -> list[Floats]:
    """Reward minus the mean of its group, divided by (standard deviation over the whole step + 1e-6): REINFORCE++ with the group as baseline
    (arXiv 2501.03262)."""
    return _normalised([_centred(rewards_G) for rewards_G in rewards_PG])


def decoupled(scores_PG: Sequence[Scores], weights: Mapping[str, float]) -> list[Floats]:
    """Each reward part is normalised in its group by itself; their weighted sum is normalised over the step (GDPO, arXiv 2601.05242).

    Attempts whose weighted rewards are equal but whose parts differ therefore differ in credit.
    """
    sums = [sum((weights[name] * mean_std(values_G).astype(np.float64) for name, values_G in scores.items()), np.zeros(1)) for scores in scores_PG]
    everything = np.concatenate(sums) if sums else np.zeros(1)
    return _normalised([values_G - float(everything.mean()) for values_G in sums])


def pass_at_k(rewards_G: Floats, k: int = 4, threshold: float = 1.0) -> Floats:
    """Credit for getting at least one of `k` attempts right; an attempt is right when its reward is at least `threshold`.

    With N attempts, W of them wrong, and p = 1 − C(W, k)/C(N, k) the chance that a random k-subset holds a right one, a right attempt gets
    (1 − p)/σ and a wrong one (1 − p − C(W − 1, k − 1)/C(N − 1, k − 1))/σ, σ² = p(1 − p): the mean credit of the subsets that it is in
    (arXiv 2508.10751, section 3.3). Zero when σ is, and in a group with fewer than `k` graded attempts.
    """
    right_G = np.asarray(rewards_G, np.float64) >= threshold
    total, wrong, k = len(right_G), int((~right_G).sum()), int(k)  # settings are read as real numbers
    if total < k:
        return np.zeros(total, np.float32)
    missed = math.comb(wrong, k) / math.comb(total, k)
    deviation = math.sqrt(missed * (1 - missed))
    if not deviation:
        return np.zeros(total, np.float32)
    for_right = missed / deviation
    for_wrong = (missed - math.comb(wrong - 1, k - 1) / math.comb(total - 1, k - 1)) / deviation if wrong else 0.0
    return np.where(right_G, for_right, for_wrong).astype(np.float32)


class Credit:
    """An advantage function with its settings, checked once. Raises UsageError for a setting that it does not have.

    The settings `positive` and `negative` (1 each) belong to every function: factors of advantages above and below 0. `weights` are those of the
    reward parts, `group_size` is the number of attempts at a question (0: not known here).
    """

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        group_size: int = 0,
    ) -> None:
        values = dict(settings or {})
        self._factors = tuple(float(values.pop(name, 1.0)) for name in _SIGNS)
        for name, factor in zip(_SIGNS, self._factors, strict=True):
            if not factor >= 0 or not math.isfinite(factor):
                raise UsageError(f"advantage setting {name!r} is {factor}, expected a finite number of at least 0")
        names = _parameters(function)
        self._whole = "rewards_PG" in names
        self._parts = "scores_PG" in names
        own = [name for name in names if name not in _INPUTS] if set(names) & set(_INPUTS) else names[1:]
        for name in values:
            if name not in own:
                raise UsageError(f"advantage {_name(function)!r} has no setting {name!r}{nearest(name, (*own, *_SIGNS))}")
        if function is pass_at_k:
            _check_k(values.get("k", _default(function, "k")), group_size)
        self._function, self._settings = function, values
        self._weights = dict(weights or {})

    @property
    def by_part(self) -> bool:
        """Whether reward parts count one by one: then a group is flat only when every part is."""
        return self._parts

    def __call__(self, rewards_PG: Sequence[Floats], scores_PG: Sequence[Scores] = ()) -> list[Floats]:
        """Advantages of every group, float32, in order; groups may differ in size.

        Raises UsageError when the function fails or answers anything but one finite number for each reward.
        """
        wanted = [np.asarray(rewards_G, np.float32) for rewards_G in rewards_PG]
        if self._parts:
            given = self._attempt(wanted, scores_PG=scores_PG, weights=self._weights)
        elif self._whole:
            given = self._attempt(wanted, rewards_PG=wanted)
        else:
            given = [self._attempt([rewards_G], rewards_G) for rewards_G in wanted]
        if len(given) != len(wanted):
            raise UsageError(f"the advantage function {_name(self._function)!r} answered {len(given)} of {len(wanted)} groups")
        return [self._checked(advantages_G, rewards_G) for advantages_G, rewards_G in zip(given, wanted, strict=True)]

    def _attempt(self, shown: Sequence[Floats], /, *inputs: Any, **named: Any) -> Any:
        try:
            result = self._function(*inputs, **named, **self._settings)
            return list(result) if named else result
        except UsageError:
            raise
        except Exception as error:
            raise _failure(shown[0] if shown else np.zeros(0), error) from error

    def _checked(self, advantages_G: Any, rewards_G: Floats) -> Floats:
        try:
            values = np.asarray(advantages_G, np.float64)
        except (TypeError, ValueError) as error:
            raise _failure(rewards_G, error) from error
        if values.shape != rewards_G.shape or not np.isfinite(values).all():
            raise UsageError(f"the advantage function made {values.tolist()} of rewards {rewards_G.tolist()}; expected one finite number for each")
        positive, negative = self._factors
        return (values * np.where(values > 0, positive, negative)).astype(np.float32)


def _failure(rewards_G: NDArray[Any], error: Exception) -> UsageError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return UsageError(f"the advantage function fails on rewards {rewards_G.tolist()}: {reason}; expected one finite number for each")


def _check_k(k: float, group_size: int) -> None:
    """With k equal to the group there is one subset only, and nobody ever gets credit."""
    if k != int(k) or k < 1 or (group_size and k >= group_size):
        most = f" to {group_size - 1}, below rollout.group_size={group_size}" if group_size else " on"
        raise UsageError(f"advantage 'pass_at_k' has k={k:g}; give a whole number from 1{most}")


def _default(function: Callable[..., Any], name: str) -> float:
    return float(inspect.signature(function).parameters[name].default)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Names of its parameters; one without a name when that cannot be told."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return [""]


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _normalised(values_PG: Sequence[NDArray[np.float64]]) -> list[Floats]:
    """Divided by (root mean square over all groups + 1e-6)."""
    deviation = float(np.sqrt(np.mean(np.concatenate(values_PG) ** 2))) if values_PG else 0.0
    return [(values_G / (deviation + EPS)).astype(np.float32) for values_G in values_PG]


def _centred(rewards_G: Floats) -> NDArray[np.float64]:
    """In double precision, so that a group's advantages sum to zero."""
    rewards = np.asarray(rewards_G, np.float64)
    return rewards - float(rewards.mean())
