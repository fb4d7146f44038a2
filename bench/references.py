"""Every loss, advantage, KL estimator and correction once more, slowly: plain Python floats, the formula by its cases, nothing from seegrad.

A loss reference gets ONE completion: `(new_T, held_T, old_T, advantages_T, settings) → losses of its tokens`. `held_T` has the values of `new_T` and
stands where the formula stops the gradient: finite differences move `new_T` only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

Row = Sequence[float]
Settings = Mapping[str, float]
LossReference = Callable[[Row, Row, Row, Row, Settings], list[float]]
AdvantageReference = Callable[[Sequence[Mapping[str, Row]], Mapping[str, float], Settings], list[list[float]]]


def importance_sampling(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    return [-math.exp(new - old) * a for new, old, a in zip(new_T, old_T, advantages_T, strict=True)]


def clipped(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    """PPO by its cases: what is gained stops growing at the bounds, and with a dual clip what is lost does too."""
    return [surrogate(math.exp(new - old), a, settings) for new, old, a in zip(new_T, old_T, advantages_T, strict=True)]


def surrogate(ratio: float, advantage: float, settings: Settings) -> float:
    low = settings.get("clip_low_threshold", 1 - settings["clip_low"])
    high = settings.get("clip_high_threshold", 1 + settings["clip_high"])
    if advantage >= 0:
        return -advantage * min(ratio, high)
    worst = -advantage * max(ratio, low)
    return min(worst, -advantage * settings["dual_clip"]) if settings["dual_clip"] else worst


def cispo(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    low, high = settings["clip_low_threshold"], settings["clip_high_threshold"]
    weights = [min(max(math.exp(held - old), low), high) for held, old in zip(held_T, old_T, strict=True)]
    return [-weight * a * new for weight, a, new in zip(weights, advantages_T, new_T, strict=True)]


def gspo(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    ratio = _sequence_ratio(new_T, old_T)
    return [surrogate(ratio, a, settings) for a in advantages_T]


def gspo_token(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    ratio = _sequence_ratio(held_T, old_T)
    moving = [ratio * math.exp(new) / math.exp(held) for new, held in zip(new_T, held_T, strict=True)]
    return [surrogate(own, a, settings) for own, a in zip(moving, advantages_T, strict=True)]


def sapo(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    losses = []
    for new, old, a in zip(new_T, old_T, advantages_T, strict=True):
        tau = settings["tau_positive"] if a > 0 else settings["tau_negative"]
        losses.append(-a * 4 / tau / (1 + math.exp(-tau * (math.exp(new - old) - 1))))
    return losses


def dro(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    return [-(new * a - settings["beta"] / 2 * (new - old) ** 2) for new, old, a in zip(new_T, old_T, advantages_T, strict=True)]


def cross_entropy(new_T: Row, held_T: Row, old_T: Row, advantages_T: Row, settings: Settings) -> list[float]:
    """The weights of the bench are its advantages: any real numbers."""
    return [-new * weight for new, weight in zip(new_T, advantages_T, strict=True)]


def k1(new: float, held: float, other: float) -> float:
    return new - other


def k2(new: float, held: float, other: float) -> float:
    return (new - other) ** 2 / 2


def k3(new: float, held: float, other: float) -> float:
    return math.exp(other) / math.exp(new) - (other - new) - 1


def k3_unbiased(new: float, held: float, other: float) -> float:
    return k3(held, held, other) + k2(new, held, other) - k2(held, held, other)


def mean(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float], settings: Settings) -> list[list[float]]:
    return [_centred(rewards_G) for rewards_G in _rewards(scores_PG, weights)]


def mean_std(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float], settings: Settings) -> list[list[float]]:
    return [_standardised(rewards_G) for rewards_G in _rewards(scores_PG, weights)]


def leave_one_out(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float], settings: Settings) -> list[list[float]]:
    return [
        [value - statistics.fmean([*rewards_G[:place], *rewards_G[place + 1 :]]) for place, value in enumerate(rewards_G)]
        for rewards_G in _rewards(scores_PG, weights)
    ]


def batch_std(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float], settings: Settings) -> list[list[float]]:
    centred = [_centred(rewards_G) for rewards_G in _rewards(scores_PG, weights)]
    deviation = statistics.pstdev([value for values_G in centred for value in values_G])
    return [[value / (deviation + 1e-6) for value in values_G] for values_G in centred]


def decoupled(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float], settings: Settings) -> list[list[float]]:
    sums = []
    for scores in scores_PG:
        parts = {name: _standardised(values_G) for name, values_G in scores.items()}
        sums.append([sum(weights[name] * parts[name][place] for name in parts) for place in range(len(next(iter(scores.values()))))])
    everything = [value for values_G in sums for value in values_G]
    centre, deviation = statistics.fmean(everything), statistics.pstdev(everything)
    return [[(value - centre) / (deviation + 1e-6) for value in values_G] for values_G in sums]


def pass_at_k(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float], settings: Settings) -> list[list[float]]:
    """By listing every subset: an attempt gets the mean standardised success of the subsets that it is in."""
    answers = []
    for rewards_G in _rewards(scores_PG, weights):
        subsets = list(combinations(range(len(rewards_G)), int(settings["k"])))
        found = [float(any(rewards_G[place] >= settings["threshold"] for place in subset)) for subset in subsets]
        centre, deviation = statistics.fmean(found), statistics.pstdev(found)
        mine = [statistics.fmean(f for f, subset in zip(found, subsets, strict=True) if place in subset) for place in range(len(rewards_G))]
        answers.append([(value - centre) / deviation if deviation else 0.0 for value in mine])
    return answers


def correction(method: str, trainer_T: Row, sampler_T: Row, settings: Settings) -> list[float]:
    """Factors of the advantages of one completion."""
    ratios = [math.exp(new) / math.exp(old) for new, old in zip(trainer_T, sampler_T, strict=True)]
    product = math.prod(ratios)
    if method == "tis":
        return [min(ratio, settings["cap"]) for ratio in ratios]
    if method == "icepop":
        return [ratio if settings["low"] <= ratio <= settings["high"] else 0.0 for ratio in ratios]
    if method == "sequence_tis":
        return [min(product, settings["cap"]) for _ in ratios]
    if method == "sequence_mask":
        return [product if product <= settings["cap"] else 0.0 for _ in ratios]
    assert method == "geometric_mask", method
    return [float(settings["low"] <= product ** (1 / len(ratios)) <= settings["high"]) for _ in ratios]


def slopes(function: Callable[[Row], Row], at_T: Row, step: float = 1e-5) -> list[float]:
    """Derivative of the sum of `function` by each entry of `at_T`: a difference quotient of fourth order, unmoved terms cancel exactly."""
    found = []
    for place in range(len(at_T)):
        values = {}
        for times in (-2, -1, 1, 2):
            moved = list(at_T)
            moved[place] += times * step
            values[times] = function(moved)
        near = math.fsum(up - down for up, down in zip(values[1], values[-1], strict=True))
        far = math.fsum(up - down for up, down in zip(values[2], values[-2], strict=True))
        found.append((8 * near - far) / (12 * step))
    return found


def _rewards(scores_PG: Sequence[Mapping[str, Row]], weights: Mapping[str, float]) -> list[list[float]]:
    return [
        [sum(weights[name] * value for name, value in zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True)]
        for scores in scores_PG
    ]


def _centred(values: Row) -> list[float]:
    centre = statistics.fmean(values)
    return [value - centre for value in values]


def _standardised(values: Row) -> list[float]:
    centre, deviation = statistics.fmean(values), statistics.pstdev(values)
    return [(value - centre) / (deviation + 1e-6) for value in values]


def _sequence_ratio(new_T: Row, old_T: Row) -> float:
    return math.exp(statistics.fmean(new - old for new, old in zip(new_T, old_T, strict=True)))
