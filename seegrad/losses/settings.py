"""Settings of a loss: known keys with defaults; an unknown key is an error that names the nearest."""

from __future__ import annotations

from collections.abc import Mapping

from seegrad.errors import UsageError, nearest


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
