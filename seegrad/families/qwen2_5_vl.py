"""Qwen2.5-VL: the markers of Qwen3-VL, and its size rule with patches of 14 pixels (a side is a multiple of 28)."""

from __future__ import annotations

from dataclasses import replace

from seegrad.families import qwen3_vl

FAMILY = replace(qwen3_vl.FAMILY, name="qwen2_5_vl")
