"""Qwen3.5: the markers and the image processor of Qwen3-VL."""

from __future__ import annotations

from dataclasses import replace

from seegrad.families import qwen3_vl

FAMILY = replace(qwen3_vl.FAMILY, name="qwen3_5")
