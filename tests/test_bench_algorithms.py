"""docs/algorithms.md: its tables are what the bench measures, every registered function and setting is on it, and RLinf's keys map to real ones."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bench import algorithms, references
from seegrad import registry
from seegrad.config import AlgorithmConfig, Config, load_config
from seegrad.correction import SETTINGS
from seegrad.losses.kl import ESTIMATORS

PAGE = (Path(__file__).parents[1] / "docs" / "algorithms.md").read_text(encoding="utf-8")


def test_the_page_holds_the_tables_that_are_measured() -> None:
    for table in algorithms.tables():
        assert table in PAGE, f"print it anew with python -m bench.algorithms:\n{table}"


def test_everything_that_is_registered_is_measured() -> None:
    assert set(algorithms.LOSSES) == set(registry.names("loss"))
    assert set(algorithms.ADVANTAGES) == set(registry.names("advantage"))
    assert set(algorithms.KL) == set(ESTIMATORS)
    assert set(algorithms.CORRECTIONS) == set(SETTINGS) - {"none"}


def test_every_bound_is_one_that_can_be_missed() -> None:
    """A reference with another formula, another bound or no stopped gradient is told from the right one."""
    rows = algorithms.LOSSES
    for name, wrong in [
        ("importance_sampling", references.dro),
        ("ppo", references.importance_sampling),
        ("dapo", references.importance_sampling),
        ("cispo", references.importance_sampling),
        ("gspo", references.clipped),
        ("gspo_token", references.gspo),
    ]:
        row = rows["dro"] if wrong is references.dro else rows[name]
        errors = algorithms.loss_errors(name, algorithms.Row("", "", "", row.defaults, spread=rows[name].spread, variants=rows[name].variants), wrong)
        assert max(errors) > 1e-4, name
    shifted = algorithms.Row("", "", "", {**rows["dapo"].defaults, "clip_high": 0.2})
    assert algorithms.loss_errors("dapo", shifted, references.clipped)[0] > 1e-3
    assert algorithms.advantage_error("mean_std", algorithms.Row("", "", ""), references.mean) > 1e-2
    assert algorithms.advantage_error("batch_std", algorithms.Row("", "", ""), references.mean_std) > 1e-2
    assert algorithms.bound(3e-8) == "< 1e-7" and algorithms.bound(0.0) == "< 1e-9"


@pytest.mark.parametrize("name", ["clipped", "cispo", "gspo"])
def test_every_bound_matters_in_the_draws(name: str) -> None:
    """Somewhere a clip removes the gradient, and somewhere it does not."""
    row = next(row for row in algorithms.LOSSES.values() if row.reference == name)
    new, old, credit, _ = algorithms.draws(row.spread)
    wide = {key: {"clip_low": 1.0, "clip_low_threshold": 0.0}.get(key, 1e9 if "high" in key else 0.0) for key in row.defaults}
    values = [
        [getattr(references, name)(new[part], new[part], old[part], credit[part], s) for part in algorithms.pieces()] for s in (row.defaults, wide)
    ]
    same = [a == b for clipped, free in zip(*values, strict=True) for a, b in zip(clipped, free, strict=True)]
    assert any(same) and not all(same)


def keys() -> set[str]:
    sections = {name: info.annotation for name, info in Config.model_fields.items()}
    return {f"{name}.{key}" for name, section in sections.items() for key in getattr(section, "model_fields", {})} | set(sections)


def test_every_setting_is_explained_and_none_is_made_up() -> None:
    assert not [key for key in AlgorithmConfig.model_fields if not re.search(rf"[`.]{key}\b", PAGE)]
    ours = PAGE.split("## The settings of RLinf")[0]
    assert not set(re.findall(r"`((?:rollout|model|data|reward|optimizer|algorithm)\.\w+)", ours)) - keys()


def test_what_stands_for_a_key_of_theirs_is_in_the_recipe() -> None:
    config = load_config("geo3k").model_dump()
    rows = re.findall(r"^\|(.+)\|(.+)\|(.+)\|(.*)\|$", PAGE.split("## The settings of RLinf")[1], re.MULTILINE)[2:]
    assert len(rows) > 35
    compared = 0
    for _, _, ours, value in rows:
        if not value.strip():
            continue
        key = next(name for name in re.findall(r"`([\w.]+)`", ours) if name in keys())
        section, _, leaf = key.rpartition(".")
        held = config[section][leaf] if section else config[leaf]
        wanted = tomllib.loads(f"value = {value.strip()}")["value"]
        assert (list(held) if isinstance(held, tuple) else held) == wanted, key
        compared += 1
    assert compared > 35
