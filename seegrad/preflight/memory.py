"""The estimate of memory against what the machine has."""

from __future__ import annotations

from collections.abc import Sequence

from seegrad.config import Config
from seegrad.preflight.check import Check
from seegrad.preflight.footprint import GIB, Footprint, Lengths, footprint
from seegrad.preflight.machine import Machine
from seegrad.preflight.parameters import Shape

NAME = "memory"


def check_memory(shape: Shape, config: Config, lengths: Lengths, machine: Machine) -> Check:
    """Passes when the estimate fits what is free. It fails only on what is exact: weights and what trains are more than the machine has in all."""
    need = footprint(shape, config, lengths, machine.device)
    table = "\n".join(f"      {line}" for line in need.table().splitlines())
    have = "how much is free is not known" if machine.free is None else f"{machine.free / GIB:.1f} GiB free"
    detail = f"about {need.peak / GIB:.1f} GiB on {machine.device}, {have}\n{table}"
    facts = {**need.facts(), "free": machine.free, "total": machine.total}
    if machine.total is not None and need.certain > machine.total:
        return Check(
            NAME,
            False,
            f"weights and what trains alone are more than this machine has; {detail}",
            _smaller(need, config, ("weights", "trained")),
            facts,
        )
    if machine.free is not None and need.peak > machine.free:
        return Check(NAME, None, detail, _smaller(need, config, ("weights", "trained", need.phase)), facts)
    return Check(NAME, True, detail, facts=facts)


def _smaller(need: Footprint, config: Config, parts: Sequence[str]) -> str:
    """The settings that lower these parts, the largest part first."""
    model = config.model
    tokens = f"model.max_train_tokens={max(1024, model.max_train_tokens // 2)}"
    options = {
        "training": f"{tokens} (now {model.max_train_tokens}: more micro-batches, the same gradient)",
        "sampling": f"model.max_sample_batch={max(1, model.max_sample_batch // 2)} and eval.batch_size={max(1, config.eval.batch_size // 2)} "
        "(fewer answers at a time, the same answers)",
        "update": "model.train=lora",
        "trained": "model.train=lora" if model.train == "full" else f"model.lora_rank={max(1, model.lora_rank // 2)}",
        "weights": "model.dtype=bfloat16, or a smaller base" if model.dtype == "float32" else "a smaller base",
    }
    order = sorted(parts, key=lambda name: -getattr(need, name))
    return "; then ".join(dict.fromkeys(options[name] for name in order))
