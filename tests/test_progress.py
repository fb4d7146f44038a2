"""What a person sees of a step."""

from __future__ import annotations

from seegrad.progress import describe


def test_the_cost_so_far_is_in_the_line_once_there_are_prices() -> None:
    assert describe({"reward": 0.5, "cost/step": 0.1, "cost/total": 5.0599}) == "reward 0.500  cost 5.06"
    assert "cost" not in describe({"reward": 0.5})
