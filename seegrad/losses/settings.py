"""Settings of a loss: known keys with defaults; an unknown key is an error that names the nearest."""

from __future__ import annotations

import math
from collections.abc import Mapping

from seegrad.errors import UsageError, nearest

NONE = math.nan  # the default of a setting that another one replaces


def settings(loss: str, config: Mapping[str, float], **defaults: float) -> dict[str, float]:
    """`defaults` overlaid with `config`. Raises UsageError for a key that `loss` does not have.

    >>> settings("ppo", {"clip_low": 0.1}, clip_low=0.2, clip_high=0.2)
    {'clip_low': 0.1, 'clip_high': 0.2}
    """
    for key in config:
        if key not in defaults:
            known = nearest(key, defaults) if defaults else "; it has no settings"
            raise UsageError(f"loss {loss!r} has no setting {key!r}{known}")
    return {**defaults, **config}


def bounds(loss: str, values: Mapping[str, float], given: Mapping[str, float]) -> tuple[float, float]:
    """(lowest, highest) ratio: `clip_low` and `clip_high` are distances from 1, `clip_low_threshold` and `clip_high_threshold` the bounds themselves.

    `given` is what the user set: one of the two forms per side. Raises UsageError for both, and for bounds that do not hold 1 between them.

    >>> bounds("ppo", {"clip_low": 0.2, "clip_high": 0.28, "clip_low_threshold": NONE, "clip_high_threshold": NONE}, {})
    (0.8, 1.28)
    """
    found = []
    for side, sign in (("clip_low", -1), ("clip_high", 1)):
        threshold = f"{side}_threshold"
        if side in given and threshold in given:
            raise UsageError(
                f"loss {loss!r} has {side}={given[side]} and {threshold}={given[threshold]}; give one: the distance from 1, or the ratio"
            )
        use_distance = side in given or (threshold not in given and math.isnan(values[threshold]))
        found.append(1 + sign * values[side] if use_distance else values[threshold])
    low, high = found
    if not 0 <= low <= 1 <= high:
        raise UsageError(
            f"loss {loss!r} needs ratios between a lower bound from 0 to 1 and an upper one of at least 1, got {low:g} and {high:g} "
            "(0 <= clip_low <= 1 and clip_high >= 0, or clip_low_threshold and clip_high_threshold)"
        )
    return low, high


def dual_clip(loss: str, value: float) -> float:
    """`value`, checked: 0 is off, else it is above 1."""
    if value and not value > 1:
        raise UsageError(f"loss {loss!r} needs dual_clip above 1 (or 0 for off), got {value}")
    return value
