"""When the sampler's logprobs are not the trainer's (another engine, another precision, older weights): how far apart they are, and what to do.

    datums ─ Policy.forward ─▶ recomputed_D ─┬─▶ mismatch(…)    numbers over the whole batch
                                             └─▶ corrected(…)   `logprobs` := recomputed, `advantages` := advantages · weight

With w = π_trainer/π_sampler of a token, W the product over a completion and T its length:

    tis              min(w, cap)                       token by token, cap 2       Yao et al. 2025; arXiv 2510.18927 names it token-level TIS
    icepop           w where low ≤ w ≤ high, else 0    low 0.5, high 5             Ling team 2025 (Every Step Evolves, arXiv 2510.18855)
    sequence_tis     min(W, cap)                       cap 2
    sequence_mask    W where W ≤ cap, else 0           cap 2
    geometric_mask   1 where low ≤ W^(1/T) ≤ high, else 0    low 0.99, high 1.01
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seegrad.errors import UsageError, nearest
from seegrad.types import Datum, Floats

SETTINGS: dict[str, dict[str, float]] = {
    "none": {},
    "tis": {"cap": 2.0},
    "icepop": {"low": 0.5, "high": 5.0},
    "sequence_tis": {"cap": 2.0},
    "sequence_mask": {"cap": 2.0},
    "geometric_mask": {"low": 0.99, "high": 1.01},
}
LARGEST_LOG_RATIO = 20.0  # exp of more is no number to weigh with


@dataclass(frozen=True, slots=True)
class Correction:
    """One method with its settings, checked.

    >>> Correction("tis").weights(np.array([0.0, 1.0]), np.array([0.0, 0.0]))[0].tolist()
    [1.0, 2.0]
    """

    method: str = "none"
    config: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.method not in SETTINGS:
            raise UsageError(f"algorithm.correction is {self.method!r}{nearest(self.method, SETTINGS)}")
        for name in self.config or {}:
            if name not in SETTINGS[self.method]:
                known = nearest(name, SETTINGS[self.method]) if SETTINGS[self.method] else "; it has no settings"
                raise UsageError(f"correction {self.method!r} has no setting {name!r}{known}")
        values = self.settings
        if not values.get("cap", 1.0) > 0 or not 0 <= values.get("low", 0.0) <= 1 <= values.get("high", 1.0):
            raise UsageError(f"correction {self.method!r} needs cap above 0 and low ≤ 1 ≤ high, got {dict(values)}")

    @property
    def settings(self) -> dict[str, float]:
        """Every setting of the method."""
        return {**SETTINGS[self.method], **(self.config or {})}

    def weights(self, trainer_T: Floats, sampler_T: Floats) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(factor of each token's advantage, whether a bound of the method decided it), from the logprobs (nats) of one completion's tokens."""
        difference_T = np.asarray(trainer_T, np.float64) - np.asarray(sampler_T, np.float64)
        length, values = len(difference_T), self.settings
        if self.method == "none" or not length:
            return np.ones(length), np.zeros(length, np.bool_)
        if self.method in ("tis", "icepop"):
            ratio_T = _exp(difference_T)
            if self.method == "tis":
                return np.minimum(ratio_T, values["cap"]), ratio_T > values["cap"]
            outside_T = (ratio_T < values["low"]) | (ratio_T > values["high"])
            return np.where(outside_T, 0.0, ratio_T), outside_T
        if self.method == "geometric_mask":
            typical = float(_exp(difference_T.mean()))
            outside = not values["low"] <= typical <= values["high"]
            return np.full(length, float(not outside)), np.full(length, outside)
        whole = float(_exp(difference_T.sum()))
        outside = whole > values["cap"]
        bounded = 0.0 if self.method == "sequence_mask" else values["cap"]
        return np.full(length, bounded if outside else whole), np.full(length, outside)


def corrected(datums: Sequence[Datum], recomputed_D: Sequence[Floats], correction: Correction) -> tuple[list[Datum], dict[str, float]]:
    """The datums with the trainer's own logprobs as old ones and weighted advantages; and the numbers of `mismatch`, with `mismatch/clipped`, the
    share of tokens whose weight a bound decided (for a method other than `none`).

    `recomputed_D` are the trainer's logprobs at the weights that are about to move, one array per datum. Prompt positions stay as they are.
    """
    made, clipped = [], []
    for datum, trainer_T in zip(datums, recomputed_D, strict=True):
        active, sampler_T = datum.active_T, datum.inputs["logprobs"]
        weight_T = np.ones(len(datum))
        weight_T[active], changed = correction.weights(trainer_T[active], sampler_T[active])
        clipped.append(changed)
        old_T = np.where(active, trainer_T, sampler_T).astype(np.float32)
        advantages_T = (datum.inputs["advantages"] * weight_T).astype(np.float32)
        made.append(replace(datum, inputs={**datum.inputs, "logprobs": old_T, "advantages": advantages_T}))
    numbers = mismatch(datums, recomputed_D)
    if correction.method != "none" and numbers:
        numbers["mismatch/clipped"] = float(np.concatenate(clipped).mean())
    return made, numbers


def mismatch(datums: Sequence[Datum], recomputed_D: Sequence[Floats]) -> dict[str, float]:
    """How far trainer and sampler are apart over all active tokens of the batch; empty when there are none.

    `actor/rollout_train_kl` and `mismatch/mean_abs`: mean |Δ|, Δ = trainer − sampler logprob (nats); `mismatch/max`: the largest |Δ|;
    `mismatch/k1` (−mean Δ) and `mismatch/k3` (mean of exp Δ − Δ − 1): KL(sampler‖trainer); `mismatch/effective_sample_size`: (Σw)²/(N·Σw²), which is
    1 when they are equal.
    """
    difference_N = _differences(datums, recomputed_D)
    if not len(difference_N):
        return {}
    ratio_N = _exp(difference_N)
    mean_abs = float(np.abs(difference_N).mean())
    return {
        "actor/rollout_train_kl": mean_abs,
        "mismatch/mean_abs": mean_abs,
        "mismatch/max": float(np.abs(difference_N).max()),
        "mismatch/k1": float(-difference_N.mean()),
        "mismatch/k3": float((ratio_N - difference_N - 1).mean()),
        "mismatch/effective_sample_size": float(ratio_N.sum() ** 2 / (len(ratio_N) * (ratio_N**2).sum())),
    }


def _differences(datums: Sequence[Datum], recomputed_D: Sequence[Floats]) -> NDArray[np.float64]:
    pieces = [(np.asarray(new_T, np.float64) - datum.inputs["logprobs"])[datum.active_T] for datum, new_T in zip(datums, recomputed_D, strict=True)]
    return np.concatenate(pieces) if pieces else np.zeros(0)


def _exp(difference: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    return np.asarray(np.exp(np.clip(difference, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)))
