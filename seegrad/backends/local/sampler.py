"""Batched generation in this process.

    prompts × P ─ prefill once each ─▶ cache rows × n ─▶ ┌ choose tokens ─ finished rows leave ┐
                                                         └──────── extend by one token ◀───────┘

A row's randomness is a stream of uniforms that depends on (prompt content, seed, sample index) alone, so that neighbours, batch size and order change
nothing but the last bits of floating-point sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from seegrad.backends.local.step import forward_logprobs
from seegrad.errors import BackendError, SamplerError
from seegrad.models.base import VLM, repeat_rows
from seegrad.models.shared_attention import SharedCache
from seegrad.types import Completion, Datum, Floats, ModelInput, SamplingParams, StopReason, TextChunk

_BLOCK = 64  # vocabulary entries summed together in the first stage of the inverse cumulative distribution
_COMPACT = 8  # rows are dropped from the batch when one in this many has finished


class WeightsView(Protocol):
    """Which weights a sampler reads. `active()` puts them into the model for the duration of the block and takes them out again."""

    def active(self) -> AbstractContextManager[None]: ...


class LiveWeights:
    """The weights that are in the model; right whenever nothing trains them."""

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()


class LocalSampler:
    """The `Sampler` of the local backend: `vlm` under the weights of `weights`, which stand behind `version` optimizer steps."""

    def __init__(
        self, vlm: VLM, version: int = 0, weights: WeightsView | None = None, *, max_sample_batch: int = 256, max_train_tokens: int = 16384
    ) -> None:
        self._vlm = vlm
        self._version = version
        self._weights: WeightsView = weights if weights is not None else LiveWeights()
        self._max_sample_batch = max_sample_batch
        self._max_train_tokens = max_train_tokens

    @property
    def version(self) -> int:
        return self._version

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """As in `Sampler.sample`. At most `max_sample_batch` rows decode together; a prompt's samples share a batch unless they alone exceed it."""
        seeds = [params.seed] * len(prompts_P) if seeds_P is None else list(seeds_P)
        self._check(prompts_P, params, num_samples, seeds)
        results: list[list[Completion]] = [[] for _ in prompts_P]
        with self._weights.active(), torch.inference_mode():
            for batch in _batches([len(prompt) for prompt in prompts_P], num_samples, self._max_sample_batch):
                prompts = [prompts_P[part.prompt] for part in batch]
                streams = [uniforms(prompts_P[p.prompt], seeds[p.prompt], g, params.max_tokens) for p in batch for g in range(p.first, p.last)]
                completions = iter(self._decode(prompts, [part.last - part.first for part in batch], np.stack(streams), params))
                for part in batch:
                    results[part.prompt] += [next(completions) for _ in range(part.first, part.last)]
        return results

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        """As in `Sampler.logprobs`."""
        with self._weights.active():
            return forward_logprobs(self._vlm, datums, temperature, self._max_train_tokens)

    def _check(self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int, seeds: Sequence[int]) -> None:
        if num_samples < 1:
            raise SamplerError(f"num_samples must be at least 1, got {num_samples}")
        if len(seeds) != len(prompts_P):
            raise SamplerError(f"seeds_P has {len(seeds)} seeds for {len(prompts_P)} prompts; give one each")
        wrong = [token for token in params.stop_token_ids if not 0 <= token < self._vlm.vocabulary_size]
        if wrong:
            raise SamplerError(f"stop_token_ids holds {wrong[0]} but the model's ids are 0 to {self._vlm.vocabulary_size - 1}")
        longest = max((len(prompt) for prompt in prompts_P), default=0)
        if longest + params.max_tokens > self._vlm.context_size:
            raise SamplerError(
                f"a prompt of {longest} tokens and max_tokens={params.max_tokens} exceed the model's context of {self._vlm.context_size} tokens; "
                "lower max_tokens or shorten the prompt"
            )

    def _decode(self, prompts_P: Sequence[ModelInput], counts_P: Sequence[int], uniforms_BT: np.ndarray, params: SamplingParams) -> list[Completion]:
        """One batch: rows B are the prompts repeated `counts_P` times."""
        vlm, device = self._vlm, self._vlm.device
        prefix = vlm.prefill(prompts_P)
        rows = repeat_rows(counts_P, device)  # prompt of each row still in the batch
        logits_BV = vlm.logits(prefix.last_PH, params.temperature).index_select(0, rows)
        cache = SharedCache(prefix.cache, prefix.mask_PT, counts_P)
        position_B = prefix.next_position_P.index_select(0, rows)
        draws_BT = torch.from_numpy(uniforms_BT).to(device)

        num_rows = len(rows)
        tokens_BT = torch.zeros(num_rows, params.max_tokens, dtype=torch.long, device=device)
        logprobs_BT = torch.zeros(num_rows, params.max_tokens, device=device)
        finish = _Finish(vlm, params, num_rows)
        alive = torch.arange(num_rows, device=device)  # output row of each batch row
        for step in range(params.max_tokens):
            token_B, logprob_B = choose(logits_BV, draws_BT[:, step], params)
            tokens_BT[alive, step] = token_B
            logprobs_BT[alive, step] = logprob_B
            running_B = finish.after(step, alive, token_B, tokens_BT)
            num_running = int(running_B.sum())
            if num_running == 0 or step + 1 == params.max_tokens:
                break
            if (len(alive) - num_running) * _COMPACT >= len(alive):
                keep = running_B.nonzero()[:, 0]
                alive, token_B, position_B, draws_BT = alive[keep], token_B[keep], position_B[keep], draws_BT[keep]
                cache.select(keep)
            logits_BV = vlm.logits(vlm.extend_shared(cache, token_B, position_B + step), params.temperature)
        return finish.completions(tokens_BT, logprobs_BT)


class _Finish:
    """Which rows have ended, where and why. A row that has ended may stay in the batch for a while; what it says then is not kept."""

    def __init__(self, vlm: VLM, params: SamplingParams, num_rows: int) -> None:
        self._tokenizer = vlm.tokenizer
        self._params = params
        self._is_stop_V = torch.zeros(vlm.vocabulary_size, dtype=torch.bool, device=vlm.device)
        self._is_stop_V[[*vlm.eos_ids, *params.stop_token_ids]] = True
        self._length_B = torch.zeros(num_rows, dtype=torch.long, device=vlm.device)  # 0: still running
        # A token holds at least one byte of text, so a stop string lies within this many last tokens.
        self._window = max((len(text.encode("utf-8")) for text in params.stop), default=0) + 4

    def after(self, step: int, alive: Tensor, token_B: Tensor, tokens_BT: Tensor) -> Tensor:
        """Note the rows that token number `step` ends; returns which of `alive` go on."""
        done_B = self._is_stop_V[token_B]
        if self._params.stop:
            tails = self._tokenizer.decode_batch(tokens_BT[alive, max(0, step + 1 - self._window) : step + 1].tolist(), skip_special_tokens=False)
            said = [any(stop in tail for stop in self._params.stop) for tail in tails]
            done_B |= torch.tensor(said, device=done_B.device)
        before_B = self._length_B[alive]
        after_B = torch.where((before_B == 0) & done_B, step + 1, before_B)
        self._length_B[alive] = after_B
        return after_B == 0

    def completions(self, tokens_BT: Tensor, logprobs_BT: Tensor) -> list[Completion]:
        """What every row said up to its end. Raises BackendError when the model's numbers are not finite."""
        if not bool(torch.isfinite(logprobs_BT).all()):
            raise BackendError("the model's logits are not finite, so nothing can be sampled; the weights are damaged or training has diverged")
        lengths = self._length_B.tolist()
        reasons: list[StopReason] = ["stop" if length else "length" for length in lengths]
        all_tokens = tokens_BT.tolist()
        logprobs = logprobs_BT.float().cpu().numpy()
        tokens = [row[: length or self._params.max_tokens] for row, length in zip(all_tokens, lengths, strict=True)]
        is_stop = self._is_stop_V.tolist()
        texts = self._tokenizer.decode_batch([row[:-1] if is_stop[row[-1]] else row for row in tokens], skip_special_tokens=True)
        return [
            Completion(tuple(row), logprobs[index, : len(row)].copy(), reason, text)
            for index, (row, reason, text) in enumerate(zip(tokens, reasons, texts, strict=True))
        ]


def choose(logits_BV: Tensor, uniform_B: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """(token_B, logprob_B) from scaled logits by inverting the cumulative distribution at `uniform_B` in [0, 1).

    The logprob is that of the whole distribution; top-k and then top-p (on what top-k left) only limit what may be drawn. Temperature 0 takes
    the largest.
    """
    largest_B1 = logits_BV.amax(-1, keepdim=True)
    weights_BV = (logits_BV - largest_B1).exp_()
    if weights_BV.shape[-1] % _BLOCK:
        weights_BV = torch.nn.functional.pad(weights_BV, (0, -weights_BV.shape[-1] % _BLOCK))
    weights_BKW = weights_BV.view(len(logits_BV), -1, _BLOCK)
    sums_BK = weights_BKW.sum(-1).double()
    normaliser_B = largest_B1[:, 0].double() + sums_BK.sum(-1).log()
    if params.temperature == 0:
        token_B = logits_BV.argmax(-1)
    elif params.top_k or params.top_p < 1:
        token_B = _choose_among_top(weights_BV, uniform_B, params)
    else:
        block_B, rest_B = _invert(sums_BK, uniform_B * sums_BK.sum(-1))
        rows = torch.arange(len(logits_BV), device=logits_BV.device)
        inner_B, _ = _invert(weights_BKW[rows, block_B].double(), rest_B)
        token_B = block_B * _BLOCK + inner_B
    return token_B, (logits_BV.gather(-1, token_B[:, None])[:, 0].double() - normaliser_B).float()


def _choose_among_top(weights_BV: Tensor, uniform_B: Tensor, params: SamplingParams) -> Tensor:
    if params.top_k and params.top_k < weights_BV.shape[-1]:
        top_BK, index_BK = weights_BV.topk(params.top_k, sorted=True)
    else:
        top_BK, index_BK = weights_BV.sort(descending=True, stable=True)
    top_BK = top_BK.double()
    if params.top_p < 1:  # the fewest, largest first, that together reach top_p
        before_BK = top_BK.cumsum(-1) - top_BK
        top_BK = top_BK.masked_fill(before_BK >= params.top_p * top_BK.sum(-1, keepdim=True), 0.0)
    chosen_B, _ = _invert(top_BK, uniform_B * top_BK.sum(-1))
    return index_BK.gather(-1, chosen_B[:, None])[:, 0]


def _invert(weights_BK: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
    """The first index whose running sum exceeds the target, and how far the target reaches into it. Never an index of weight 0."""
    running_BK = weights_BK.cumsum(-1)
    # Rounding can put the target at the very end: the first place of the largest running sum is the last index with any weight.
    index_B = torch.minimum((running_BK <= target_B[:, None]).sum(-1), running_BK.argmax(-1))
    chosen_B1 = index_B[:, None]
    rest_B = target_B - (running_BK.gather(-1, chosen_B1) - weights_BK.gather(-1, chosen_B1))[:, 0]
    return index_B, rest_B.clamp_min(0.0)


def uniforms(prompt: ModelInput, seed: int, sample: int, count: int) -> np.ndarray:
    """`count` float64 uniforms in [0, 1) of one row: a Philox stream keyed by prompt content, seed and sample index.

    A longer stream starts with the shorter one.
    """
    digest = hashlib.sha256()
    for chunk in prompt.chunks:
        content = np.asarray(chunk.tokens, np.int64).tobytes() if isinstance(chunk, TextChunk) else hashlib.sha256(chunk.data).digest()
        digest.update(b"%s %d " % (type(chunk).__name__.encode(), len(content)) + content)
    digest.update(f"seed {seed} sample {sample}".encode())
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest()[:16], "little"))).random(count)


@dataclass(frozen=True, slots=True)
class _Part:
    """Samples `first` to `last` (exclusive) of a prompt."""

    prompt: int
    first: int
    last: int


def _batches(lengths_P: Sequence[int], num_samples: int, limit: int) -> list[list[_Part]]:
    """Parts in batches of at most `limit` rows, prompts of like length together; a prompt is split only when its samples alone exceed the limit."""
    batches: list[list[_Part]] = []
    room = 0
    for prompt in sorted(range(len(lengths_P)), key=lambda p: lengths_P[p]):
        for first in range(0, num_samples, limit):
            part = _Part(prompt, first, min(first + limit, num_samples))
            if part.last - part.first > room:
                batches.append([])
                room = limit
            batches[-1].append(part)
            room -= part.last - part.first
    return batches
