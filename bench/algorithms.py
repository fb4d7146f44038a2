"""Are the losses and advantages what their papers say? Each against a slow reference in plain Python floats, value and gradient.

python -m bench.algorithms            the tables of docs/algorithms.md

Errors are absolute, over answers of 1 to 30 tokens, advantages of both signs and logprobs that have moved enough for every bound to matter. They are
printed as bounds, so that the page does not change with the last digit of a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bench import references
from seegrad import registry
from seegrad.advantages import Credit
from seegrad.correction import SETTINGS, Correction
from seegrad.losses.kl import ESTIMATORS

LENGTHS = (1, 7, 30, 2)  # tokens of each completion
SIGNS = (1.5, -1.0, 0.5, -2.0)  # their advantages, about
CLIPS = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0}
GSPO = {"clip_low": 3e-4, "clip_high": 4e-4, "dual_clip": 0.0}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `defaults` are what the reference is given when the function is given nothing, `variants` are tried besides."""

    source: str
    formula: str
    reference: str
    defaults: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    spread: float = 0.5  # how far logprobs have moved, nats
    variants: tuple[Mapping[str, float], ...] = ()


THRESHOLDS = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.1}
LOSSES = {
    "importance_sampling": Row("Schulman 2015, TRPO, eq. 14", "−r·A", "importance_sampling", note="any"),
    "ppo": Row(
        "Schulman 2017, [1707.06347](https://arxiv.org/abs/1707.06347), eq. 7; dual clip [1912.09729](https://arxiv.org/abs/1912.09729)",
        "−min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A); with dual_clip c at most −c·A where A < 0",
        "clipped",
        CLIPS,
        "`sequence_mean` (GRPO) or `token_mean`",
        variants=({"clip_low": 0.1, "clip_high": 0.3, "dual_clip": 1.5}, THRESHOLDS),
    ),
    "dapo": Row(
        "Yu 2025, DAPO, [2503.14476](https://arxiv.org/abs/2503.14476), section 3.1",
        "`ppo` with other bounds",
        "clipped",
        {**CLIPS, "clip_high": 0.28},
        "`token_mean` (its section 3.3)",
        variants=({"dual_clip": 3.0},),
    ),
    "dr_grpo": Row(
        "Liu 2025, Dr. GRPO, [2503.20783](https://arxiv.org/abs/2503.20783), section 3.2",
        "`ppo`; what differs is the reduction, and advantage `mean`",
        "clipped",
        CLIPS,
        "`constant_length`",
        variants=({"clip_high": 0.5},),
    ),
    "cispo": Row(
        "MiniMax 2025, M1, [2506.13585](https://arxiv.org/abs/2506.13585), section 3.1",
        "−sg(clip(r, clip_low_threshold, clip_high_threshold))·A·logprob",
        "cispo",
        {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
        "`token_mean`",
        1.0,
        ({"clip_low_threshold": 0.5, "clip_high_threshold": 1.5},),
    ),
    "gspo": Row(
        "Zheng 2025, GSPO, [2507.18071](https://arxiv.org/abs/2507.18071), eqs. 5 and 7",
        "`ppo` with s = exp(mean over the answer of logprob − old) in place of r",
        "gspo",
        GSPO,
        "`sequence_mean`",
        2e-3,
        ({"clip_low": 1e-3, "clip_high": 2e-4},),
    ),
    "gspo_token": Row(
        "the same, eqs. 13 and 14",
        "`gspo` with s_t = sg(s)·π_t/sg(π_t)",
        "gspo_token",
        GSPO,
        "`sequence_mean`",
        2e-3,
        ({"clip_low": 1e-3, "clip_high": 2e-4},),
    ),
    "sapo": Row(
        "Gao 2025, SAPO, [2511.20347](https://arxiv.org/abs/2511.20347)",
        "−(4/τ)·sigmoid(τ·(r − 1))·A, τ by the sign of A",
        "sapo",
        {"tau_positive": 1.0, "tau_negative": 1.05},
        "`sequence_mean`",
        variants=({"tau_positive": 2.0, "tau_negative": 0.5},),
    ),
    "dro": Row(
        "Richemond 2024, DRO, [2405.19107](https://arxiv.org/abs/2405.19107), policy objective",
        "−(logprob·A − β/2·(logprob − old)²), β = beta",
        "dro",
        {"beta": 0.05},
        "any",
        variants=({"beta": 0.3},),
    ),
    "cross_entropy": Row("maximum likelihood", "−weight·logprob", "cross_entropy", note="any; for datums with weights, not for `seegrad train`"),
}
ADVANTAGES = {
    "mean": Row("Liu 2025, Dr. GRPO, [2503.20783](https://arxiv.org/abs/2503.20783), section 3.2", "R − mean of the group", "mean"),
    "mean_std": Row(
        "Shao 2024, GRPO, [2402.03300](https://arxiv.org/abs/2402.03300), section 4.1.2",
        "(R − mean)/(σ + 1e-6), σ the population deviation of the group",
        "mean_std",
    ),
    "leave_one_out": Row(
        "Ahmadian 2024, RLOO, [2402.14740](https://arxiv.org/abs/2402.14740), section 3", "R − mean of the other attempts", "leave_one_out"
    ),
    "batch_std": Row(
        "Hu 2025, REINFORCE++ with a group baseline, [2501.03262](https://arxiv.org/abs/2501.03262)",
        "(R − mean of the group)/(σ of these over the step + 1e-6)",
        "batch_std",
    ),
    "decoupled": Row(
        "GDPO, [2601.05242](https://arxiv.org/abs/2601.05242)",
        "`mean_std` of each reward part, weighted sum, then mean and σ over the step",
        "decoupled",
    ),
    "pass_at_k": Row(
        "Chen 2025, [2508.10751](https://arxiv.org/abs/2508.10751), section 3.3",
        "mean over the k-subsets that hold the attempt of (1 if one of them is right, else 0), centred and scaled over all k-subsets; "
        "right: R ≥ threshold",
        "pass_at_k",
        {"k": 4, "threshold": 1.0},
        variants=({"k": 2, "threshold": 0.5}, {"k": 1}),
    ),
}
KL = {
    "k1": Row("Schulman 2020", "log p − log q", "k1", note="value; gradient 0 on average: reward only"),
    "k2": Row("Schulman 2020", "(log p − log q)²/2", "k2", note="gradient"),
    "k3": Row("Schulman 2020; GRPO, eq. 4", "q/p − log(q/p) − 1", "k3", note="value"),
    "k3_unbiased": Row("[2506.09477](https://arxiv.org/abs/2506.09477)", "value of k3, gradient of k2", "k3_unbiased", note="value and gradient"),
}
CORRECTIONS = {
    "tis": ("Yao 2025; named in [2510.18927](https://arxiv.org/abs/2510.18927)", "min(w, cap)"),
    "icepop": ("Ling team 2025, [2510.18855](https://arxiv.org/abs/2510.18855)", "w where low ≤ w ≤ high, else 0"),
    "sequence_tis": ("the same with the whole answer's W", "min(W, cap)"),
    "sequence_mask": ("", "W where W ≤ cap, else 0"),
    "geometric_mask": ("", "1 where low ≤ W^(1/T) ≤ high, else 0"),
}


def main() -> None:
    print("\n\n".join(tables()))


def tables() -> tuple[str, str, str, str]:
    """Losses, advantages, KL estimators, corrections, as Markdown."""
    return loss_table(), advantage_table(), kl_table(), correction_table()


def loss_table() -> str:
    lines = []
    for name, row in LOSSES.items():
        value, gradient, single = loss_errors(name, row)
        lines.append((f"`{name}`", row.source, row.formula, _settings(row.defaults), row.note, bound(value), bound(gradient), bound(single, 1e-5)))
    heads = ("loss", "source", "formula, per token", "settings", "reduction it is meant for", "value", "gradient", "gradient, float32")
    return table(heads, lines)


def advantage_table() -> str:
    lines = []
    for name, row in ADVANTAGES.items():
        lines.append((f"`{name}`", row.source, row.formula, _settings(row.defaults), bound(advantage_error(name, row), 1e-5)))
    return table(("advantage", "source", "formula", "settings", "value"), lines)


def kl_table() -> str:
    lines = []
    for name, row in KL.items():
        value, gradient = kl_errors(name, row)
        lines.append((f"`{name}`", row.source, row.formula, row.note, bound(value), bound(gradient)))
    return table(("estimator", "source", "formula, tokens drawn from p", "unbiased", "value", "gradient"), lines)


def correction_table() -> str:
    lines = []
    for name, (source, formula) in CORRECTIONS.items():
        lines.append((f"`{name}`", source, formula, _settings(SETTINGS[name]), bound(correction_error(name))))
    return table(("correction", "source", "factor of the advantage", "settings", "value"), lines)


def loss_errors(name: str, row: Row, reference: references.LossReference | None = None) -> tuple[float, float, float]:
    """Largest error of the value, of the gradient, and of the gradient in float32, over the defaults and all variants."""
    function, slow = registry.load("loss", name), reference or getattr(references, row.reference)
    new, old, advantages, sequence = draws(row.spread)
    worst = (0.0, 0.0, 0.0)
    for config in ({}, *row.variants):
        wanted = {**row.defaults, **config}
        values: list[float] = []
        slope: list[float] = []
        for part in pieces():
            here, then, credit = new[part], old[part], advantages[part]
            values += slow(here, here, then, credit, wanted)
            slope += references.slopes(partial(_moved, slow, here, then, credit, wanted), here)
        errors = []
        for dtype in (torch.float64, torch.float32):
            moving = torch.tensor(new, dtype=dtype, requires_grad=True)
            inputs = {"logprobs": torch.tensor(old, dtype=dtype), "advantages": torch.tensor(advantages, dtype=dtype), "sequence": sequence}
            result = function(moving, {**inputs, "weights": inputs["advantages"]}, config)
            loss: Tensor = result[0] if isinstance(result, tuple) else result
            loss.sum().backward()
            assert moving.grad is not None
            errors.append((_gap(loss.tolist(), values), _gap(moving.grad.tolist(), slope)))
        worst = (max(worst[0], errors[0][0]), max(worst[1], errors[0][1]), max(worst[2], errors[1][1]))
    return worst


def advantage_error(name: str, row: Row, reference: references.AdvantageReference | None = None) -> float:
    """Largest error over a step of groups of several sizes with two reward parts."""
    draw = np.random.default_rng(4)
    weights = {"right": 1.0, "form": 0.25}
    scores = [{"right": draw.integers(0, 2, size).tolist(), "form": draw.uniform(0, 1, size).round(2).tolist()} for size in (5, 8, 8, 16)]
    arrays = [{part: np.array(values, np.float32) for part, values in group.items()} for group in scores]
    exact = [{part: values.astype(float).tolist() for part, values in group.items()} for group in arrays]
    rewards = [np.sum([np.float32(weights[part]) * values for part, values in group.items()], axis=0) for group in arrays]
    worst = 0.0
    for config in ({}, *row.variants):
        credit = Credit(registry.load("advantage", name), config, weights)
        wanted = (reference or getattr(references, row.reference))(exact, weights, {**row.defaults, **config})
        worst = max(worst, *(_gap(given.tolist(), slow) for given, slow in zip(credit(rewards, arrays), wanted, strict=True)))
    return worst


def kl_errors(name: str, row: Row) -> tuple[float, float]:
    """Largest error of value and gradient."""
    new, other, _, _ = draws(row.spread)
    slow = getattr(references, row.reference)
    moving = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    value = ESTIMATORS[name](moving, torch.tensor(other, dtype=torch.float64))
    value.sum().backward()
    assert moving.grad is not None
    wanted = [slow(p, p, q) for p, q in zip(new, other, strict=True)]
    slope = [references.slopes(partial(_moved_one, slow, p, q), [p])[0] for p, q in zip(new, other, strict=True)]
    return _gap(value.tolist(), wanted), _gap(moving.grad.tolist(), slope)


def correction_error(name: str) -> float:
    """Largest error of the factors, for trainers near the sampler and far from it."""
    worst = 0.0
    for spread in (0.01, 0.5):
        trainer, sampler, _, _ = draws(spread)
        for part in pieces():
            given, _ = Correction(name).weights(np.array(trainer[part]), np.array(sampler[part]))
            worst = max(worst, _gap(given.tolist(), references.correction(name, trainer[part], sampler[part], SETTINGS[name])))
    return worst


def draws(spread: float) -> tuple[list[float], list[float], list[float], Tensor]:
    """(new logprobs, old ones, advantages, number of the completion) of all tokens."""
    draw = np.random.default_rng(5)
    old = draw.normal(-2.0, 1.0, sum(LENGTHS))
    new = old + draw.normal(0.0, spread, len(old))
    credit = np.repeat(SIGNS, LENGTHS) * draw.uniform(0.5, 1.5, len(old))  # tokens of a completion differ too, which tells gspo_token from gspo
    return new.tolist(), old.tolist(), credit.tolist(), torch.tensor(np.repeat(np.arange(len(LENGTHS)), LENGTHS))


def pieces() -> list[slice]:
    """The tokens of each completion."""
    return [slice(int(end) - length, int(end)) for end, length in zip(np.cumsum(LENGTHS), LENGTHS, strict=True)]


def bound(error: float, floor: float = 1e-9) -> str:
    """The smallest power of ten from `floor` on that is above the error.

    >>> bound(3e-13), bound(2e-4)
    ('< 1e-9', '< 1e-3')
    """
    power = round(np.log10(floor))
    while not error < 10.0**power:
        power += 1
        assert power < 3, error
    return f"< 1e{power}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _moved(
    slow: references.LossReference,
    held: references.Row,
    old: references.Row,
    credit: references.Row,
    settings: references.Settings,
    new: references.Row,
) -> list[float]:
    return slow(new, held, old, credit, settings)


def _moved_one(slow: Callable[[float, float, float], float], held: float, other: float, at: references.Row) -> list[float]:
    return [slow(at[0], held, other)]


def _gap(given: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(given, wanted, strict=True))


def _settings(defaults: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in defaults.items()) or "none"


if __name__ == "__main__":
    main()
