"""Forward and backward over datums that share prefixes: each prefix once, its completions on top of its cache, the gradient through it.

    datums ─ shared_prefixes ─ plan ─▶ micro-batch ─ prefill (prefixes) ─ extend (suffixes, by length) ─▶ hidden
                                                                                                           │ active positions only
    StepOutput ◀─ metrics, logprobs ◀─ backward ◀─ weight_N · (loss_N + KL_N) ◀─ log_probs ◀───────────────┘

The weight of a token comes from the whole batch before the first forward, so that the gradient is the same for any split into micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seegrad import registry
from seegrad.backends.local.sharing import SharedPrefix, active_length, bucket_tops, plan, shared_prefixes
from seegrad.errors import BackendError, SeegradError, UsageError
from seegrad.losses.kl import ESTIMATORS, k3
from seegrad.models.base import VLM, select_rows
from seegrad.types import Datum, Floats, Ints, LossSpec, StepOutput


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The active tokens of one micro-batch, datum after datum: token n is position `position_N[n]` of datum `datum_N[n]`."""

    datum_N: Ints
    position_N: Ints
    logprobs_N: Tensor
    entropy_N: Tensor


def run_step(vlm: VLM, datums: Sequence[Datum], loss: LossSpec, *, max_tokens: int, backward: bool) -> StepOutput:
    """Logprobs, entropies and metrics of `datums`; with `backward` the gradients are added to the parameters that require them.

    Metrics are means over the active tokens of the whole batch, except `loss` (the reduced sum that is differentiated) and `num_tokens`: `entropy`;
    with input `logprobs` also `ratio_mean`, `ratio_max_deviation` (the largest |trainer − sampler| logprob) and `sampler_kl` (k3 from the sampler);
    with `ref_logprobs` also `kl` (to the reference by `loss.kl_estimator`, which the setting `kl_coef` puts into the loss); and whatever the loss
    reports. A batch without active tokens gives zeros.
    Raises UsageError for a wrong setting or a missing input, BackendError when the loss fails.
    """
    active_D = [datum.active_T for datum in datums]
    loss_function, config, kl_coef, entropy_coef = _loss(loss)
    names = _input_names(datums, active_D)
    if kl_coef and any(active.any() for active in active_D) and "ref_logprobs" not in names:
        raise UsageError(
            f"kl_coef={kl_coef} needs the input 'ref_logprobs' in every datum, given: {', '.join(sorted(names))}; score them with the reference"
        )
    kl_estimator = ESTIMATORS[loss.kl_estimator]
    weight_D = _token_weights(loss, [int(active.sum()) for active in active_D])
    logprobs_D = tuple(np.zeros(len(datum), np.float32) for datum in datums)
    entropy_D = tuple(np.zeros(len(datum), np.float32) for datum in datums)
    sums: dict[str, float] = {}
    largest = 0.0
    with torch.set_grad_enabled(backward):
        for scored in _score(vlm, datums, active_D, loss.temperature, max_tokens, entropy_gradient=entropy_coef != 0):
            inputs = _Inputs(loss.name, _gather(datums, scored, names, vlm.device))
            loss_N, parts = _losses(loss_function, loss.name, config, scored.logprobs_N, inputs)
            parts["entropy"] = scored.entropy_N
            loss_N = loss_N - entropy_coef * scored.entropy_N if entropy_coef else loss_N
            if "ref_logprobs" in inputs:
                parts["kl"] = kl_estimator(scored.logprobs_N, inputs["ref_logprobs"])
                loss_N = loss_N + kl_coef * parts["kl"] if kl_coef else loss_N
            weight_N = torch.from_numpy(weight_D[scored.datum_N]).to(vlm.device)
            total = (loss_N * weight_N).sum()
            if backward and total.requires_grad:
                total.backward()
            with torch.no_grad():
                if "logprobs" in inputs:
                    difference_N = scored.logprobs_N - inputs["logprobs"]
                    parts["ratio_mean"] = difference_N.exp()
                    parts["sampler_kl"] = k3(inputs["logprobs"], scored.logprobs_N)
                    largest = max(largest, float(difference_N.abs().max()))
                for name, value in zip(parts, torch.stack([part.detach().double().sum() for part in parts.values()]).tolist(), strict=True):
                    sums[name] = sums.get(name, 0.0) + value
                sums["loss"] = sums.get("loss", 0.0) + float(total)
            _scatter(scored, scored.logprobs_N, logprobs_D)
            _scatter(scored, scored.entropy_N, entropy_D)
    num_tokens = sum(int(active.sum()) for active in active_D)
    metrics = {name: value / num_tokens for name, value in sums.items() if name != "loss"}
    metrics = {"loss": sums.get("loss", 0.0), "entropy": 0.0, **metrics, "num_tokens": float(num_tokens)}
    if "ratio_mean" in metrics:
        metrics["ratio_max_deviation"] = largest
    return StepOutput(logprobs_D, entropy_D, metrics)


def try_loss(loss: LossSpec) -> None:
    """Call the loss on one completion of two tokens with the inputs of a rollout. Raises UsageError or BackendError in one line."""
    function, config, kl_coef, _ = _loss(loss)
    _token_weights(loss, [2])
    inputs = {"logprobs": torch.tensor([-1.0, -2.0]), "advantages": torch.tensor([1.0, 1.0]), "mask": torch.ones(2)}
    inputs |= {"ref_logprobs": torch.tensor([-1.0, -2.0])} if kl_coef else {}
    moving = torch.tensor([-1.0, -2.0], requires_grad=True)
    _losses(function, loss.name, config, moving, _Inputs(loss.name, {**inputs, "sequence": torch.zeros(2, dtype=torch.int64)}))


def forward_logprobs(vlm: VLM, datums: Sequence[Datum], temperature: float, max_tokens: int) -> list[Floats]:
    """Logprob of each datum's targets, 0 where not active. No gradients."""
    logprobs_D = [np.zeros(len(datum), np.float32) for datum in datums]
    with torch.no_grad():
        for scored in _score(vlm, datums, [datum.active_T for datum in datums], temperature, max_tokens):
            _scatter(scored, scored.logprobs_N, logprobs_D)
    return logprobs_D


def _score(
    vlm: VLM,
    datums: Sequence[Datum],
    active_D: Sequence[NDArray[np.bool_]],
    temperature: float,
    max_tokens: int,
    *,
    entropy_gradient: bool = False,
) -> Iterator[Scored]:
    lengths = [active_length(active) for active in active_D]
    for batch in plan(shared_prefixes(datums, lengths, vlm.placeholder_id), max_tokens):
        hidden_SH, sources = _hidden(vlm, batch)
        datum_N, position_N, row_N, target_N = [], [], [], []
        for index, (length, prefix_row, suffix_row) in sources.items():
            positions = np.flatnonzero(active_D[index])
            datum_N.append(np.full(len(positions), index))
            position_N.append(positions)
            row_N.append(positions + np.where(positions < length, prefix_row, suffix_row - length))
            target_N.append(datums[index].target_tokens_T[positions])
        targets = np.concatenate(target_N)
        if targets.min() < 0 or targets.max() >= vlm.vocabulary_size:
            raise BackendError(
                f"target tokens run from {targets.min()} to {targets.max()} but the model's vocabulary is 0 to {vlm.vocabulary_size - 1}"
            )
        rows = torch.from_numpy(np.concatenate(row_N)).to(vlm.device)
        target_tokens_N = torch.from_numpy(targets).to(vlm.device)
        hidden_NH = hidden_SH.index_select(0, rows)
        yield Scored(
            np.concatenate(datum_N),
            np.concatenate(position_N),
            *vlm.log_probs(hidden_NH, target_tokens_N, temperature, entropy_gradient=entropy_gradient),
        )


def _hidden(vlm: VLM, batch: Sequence[SharedPrefix]) -> tuple[Tensor, dict[int, tuple[int, int, int]]]:
    """All states of a micro-batch in one table [S, H], and per datum (prefix length, row of its first position, row of its first suffix position)."""
    prefix = vlm.prefill([item.model_input for item in batch])
    width = prefix.hidden_PTH.shape[1]
    tables = [prefix.hidden_PTH.flatten(0, 1)]
    members = [(row, item.length, member) for row, item in enumerate(batch) for member in item.members]
    # A prefix that ends the input of all its members needs no cache rows.
    sources = {m.datum: (length, row * width + width - length, 0) for row, length, m in members}
    tops = bucket_tops([len(m.suffix) for _, _, m in members])
    longer = sorted((item for item in members if item[2].suffix), key=lambda item: tops[len(item[2].suffix)])
    base = len(tables[0])
    for top, group in groupby(longer, key=lambda item: tops[len(item[2].suffix)]):
        bucket = list(group)
        tokens_BT = torch.tensor([m.suffix + (0,) * (top - len(m.suffix)) for _, _, m in bucket], device=vlm.device)
        lengths_B = torch.tensor([len(m.suffix) for _, _, m in bucket], device=vlm.device)
        rows_B = torch.tensor([row for row, _, _ in bucket], device=vlm.device)
        real_BT = torch.arange(top, device=vlm.device)[None] < lengths_B[:, None]
        mask_BL = torch.cat([prefix.mask_PT.index_select(0, rows_B), real_BT], 1)
        hidden_BTH = vlm.extend(select_rows(prefix.cache, rows_B), tokens_BT, mask_BL, prefix.next_position_P.index_select(0, rows_B))
        tables.append(hidden_BTH.flatten(0, 1))
        for row, (_, _, member) in enumerate(bucket):
            length, prefix_row, _ = sources[member.datum]
            sources[member.datum] = (length, prefix_row, base + row * top)
        base += len(bucket) * top
    return torch.cat(tables) if len(tables) > 1 else tables[0], sources


def _loss(loss: LossSpec) -> tuple[Any, dict[str, float], float, float]:
    """(function, its settings, kl_coef, entropy_coef), checked."""
    if not loss.temperature > 0:
        raise UsageError(f"a loss needs a temperature above 0, got {loss.temperature}; give the sampling temperature (1 for greedy)")
    if loss.denominator is not None and not (loss.denominator > 0 and math.isfinite(loss.denominator)):
        raise UsageError(f"a loss needs a denominator above 0, got {loss.denominator}")
    if loss.kl_estimator not in ESTIMATORS:
        raise UsageError(f"a loss needs a kl_estimator out of {', '.join(ESTIMATORS)}, got {loss.kl_estimator!r}")
    config = dict(loss.config)
    kl_coef, entropy_coef = (float(config.pop(name, 0.0)) for name in ("kl_coef", "entropy_coef"))
    if kl_coef and loss.kl_estimator == "k1":
        raise UsageError("kl_estimator k1 has no gradient in a loss (its expectation is 0); use k2, k3 or k3_unbiased")
    return registry.load("loss", loss.name), config, kl_coef, entropy_coef


def _token_weights(loss: LossSpec, num_active_D: Sequence[int]) -> Floats:
    """Weight of each active token per datum. Datums without active tokens count nowhere."""
    num_sequences = sum(n > 0 for n in num_active_D)
    counts = {"sum": 1, "token_mean": sum(num_active_D), "sequence_mean": num_sequences, "constant_length": num_sequences}
    denominator = loss.denominator or counts[loss.reduction] or 1
    divisors = np.ones(len(num_active_D))
    if loss.reduction == "sequence_mean":
        divisors = np.maximum(np.asarray(num_active_D, np.float64), 1)
    elif loss.reduction == "constant_length":
        if loss.length is None or not loss.length > 0:
            raise UsageError(f"reduction 'constant_length' needs a length above 0, got {loss.length}; give the largest number of tokens of an answer")
        divisors = np.full(len(num_active_D), loss.length)
    return (1.0 / (divisors * denominator)).astype(np.float32)


def _input_names(datums: Sequence[Datum], active_D: Sequence[NDArray[np.bool_]]) -> frozenset[str]:
    given = {frozenset(datum.inputs): None for datum, active in zip(datums, active_D, strict=True) if active.any()}
    if len(given) > 1:
        first, second = list(given)[:2]
        raise UsageError(f"all datums of a batch need the same inputs, but {', '.join(sorted(first ^ second))!r} is in some only")
    return next(iter(given), frozenset())


def _gather(datums: Sequence[Datum], scored: Scored, names: frozenset[str], device: torch.device) -> dict[str, Tensor]:
    """Inputs by name at the active tokens (float32), and `sequence`: 0, 1, … per datum of the micro-batch."""
    starts, runs = _runs(scored.datum_N)
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        pieces = [np.asarray(datums[scored.datum_N[start]].inputs[name])[scored.position_N[run]] for start, run in zip(starts, runs, strict=True)]
        tensors[name] = torch.from_numpy(np.concatenate(pieces).astype(np.float32, copy=False)).to(device)
    lengths = [run.stop - run.start for run in runs]
    tensors["sequence"] = torch.from_numpy(np.repeat(np.arange(len(runs)), lengths)).to(device)
    return tensors


def _scatter(scored: Scored, values_N: Tensor, arrays_D: Sequence[Floats]) -> None:
    values = values_N.detach().float().cpu().numpy()
    starts, runs = _runs(scored.datum_N)
    for start, run in zip(starts, runs, strict=True):
        arrays_D[scored.datum_N[start]][scored.position_N[run]] = values[run]


def _runs(datum_N: Ints) -> tuple[list[int], list[slice]]:
    """Where each datum's tokens lie in the row."""
    starts = [0, *(np.flatnonzero(np.diff(datum_N)) + 1).tolist()]
    return starts, [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(datum_N)], strict=True)]


class _Inputs(dict[str, Tensor]):
    """The inputs of a loss; asking for one that the datums do not carry is the user's error, said in one line."""

    def __init__(self, loss: str, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self._loss = loss

    def __missing__(self, name: str) -> Tensor:
        given = ", ".join(sorted(key for key in self if key != "sequence")) or "none"
        raise UsageError(f"loss {self._loss!r} needs the input {name!r} in every datum, given: {given}")


def _losses(function: Any, name: str, config: Mapping[str, float], logprobs_N: Tensor, inputs: _Inputs) -> tuple[Tensor, dict[str, Tensor]]:
    """(per-token loss, per-token diagnostics), checked."""
    try:
        result = function(logprobs_N, inputs, config)
    except SeegradError:
        raise
    except Exception as error:
        raise BackendError(f"loss {name!r} raised {type(error).__name__}: {error}") from error
    loss_N, parts = result if isinstance(result, tuple) else (result, {})
    for label, value in {"loss": loss_N, **parts}.items():
        if not isinstance(value, Tensor) or value.shape != logprobs_N.shape:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise BackendError(f"loss {name!r} must return one {label} per token, a tensor of shape {list(logprobs_N.shape)}, got {shape}")
    return loss_N.float(), dict(parts)
