"""Which datums share a prefix, and how the work is cut into micro-batches. Content and lengths only; no torch.

datums ─ shared_prefixes ─▶ SharedPrefix(model_input, members)      one forward per prefix, its members continue from the cache
                                 └─ plan ─▶ micro-batches           each a list of prefixes of similar length, within the token budget
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from seegrad.types import Chunk, Datum, ModelInput, TextChunk

_LEAST_SHARED = 8  # positions: below that, a second forward costs more than it saves
_FORWARD_COST = 128  # what one more forward costs, counted in padded positions
_CANDIDATE_LENGTHS = 32  # bucket boundaries that are considered
_DEEPEST_BRANCH = 64

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A datum under a prefix: its number in the batch and the tokens that follow the prefix (none: the prefix is all of it)."""

    datum: int
    suffix: Tokens


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The first `length` positions of all its members' inputs, by content."""

    model_input: ModelInput
    length: int
    members: tuple[Member, ...]


def shared_prefixes(datums: Sequence[Datum], lengths_D: Sequence[int], placeholder: int) -> list[SharedPrefix]:
    """Groups the datums by content. `lengths_D` are the positions of each datum that matter (0 leaves it out).

    Datums can share when all their chunks before the last text are equal; what they share is those chunks and the longest common run of tokens after
    them. Among the possible groups those that save the most positions are taken; a datum that shares nothing is a prefix of its own.
    A prefix ends before a text token that is the image `placeholder` (a completion may hold one): only what follows a prefix is read as plain text.
    """
    by_head: dict[tuple[Chunk, ...], list[tuple[int, Tokens]]] = {}
    for index, (datum, length) in enumerate(zip(datums, lengths_D, strict=True)):
        if length:
            head, tail = _cut(datum.model_input)
            size = sum(len(chunk) for chunk in head)
            by_head.setdefault(head, []).append((index, tail[: max(length - size, 0)]))
    prefixes = []
    for head, rows in by_head.items():
        size = sum(len(chunk) for chunk in head)
        rows.sort(key=lambda row: row[1])
        for part, shared in _best_groups(rows, size, 0):
            tokens = part[0][1][:shared]
            if placeholder in tokens:
                shared = tokens.index(placeholder)
                tokens = tokens[:shared]
            chunks = (*head, TextChunk(tokens)) if tokens else head
            members = tuple(Member(index, tail[shared:]) for index, tail in part)
            prefixes.append(SharedPrefix(ModelInput(chunks), size + shared, members))
    return prefixes


def plan(prefixes: Sequence[SharedPrefix], max_tokens: int) -> list[list[SharedPrefix]]:
    """Micro-batches of at most `max_tokens` padded positions (prefixes plus suffixes); a single datum may exceed them.

    A prefix whose members do not fit is repeated in the next micro-batch; one that fits whole is not cut. Every micro-batch holds prefixes of like
    length.
    """
    suffix_tops = bucket_tops([len(member.suffix) for prefix in prefixes for member in prefix.members])
    prefix_tops = bucket_tops([prefix.length for prefix in prefixes])
    ordered = sorted(prefixes, key=lambda prefix: prefix.length)
    batches = []
    for top, bucket in groupby(ordered, key=lambda prefix: prefix_tops[prefix.length]):
        batch: list[SharedPrefix] = []
        used = 0
        for prefix in bucket:
            sizes = [suffix_tops[len(member.suffix)] for member in prefix.members]
            if batch and used + top + sum(sizes) > max_tokens:
                batches.append(batch)
                batch, used = [], 0
            start, used = 0, used + top
            for position, size in enumerate(sizes):
                if position > start and used + size > max_tokens:
                    batches.append([*batch, SharedPrefix(prefix.model_input, prefix.length, prefix.members[start:position])])
                    batch, start, used = [], position, top
                used += size
            batch.append(SharedPrefix(prefix.model_input, prefix.length, prefix.members[start:]))
        if batch:
            batches.append(batch)
    return batches


def bucket_tops(lengths: Sequence[int]) -> dict[int, int]:
    """For each length the length that it is padded to, so that padding plus the cost of the forwards is least. Length 0 stays 0.

    >>> bucket_tops([10] * 99 + [11, 1000])
    {10: 11, 11: 11, 1000: 1000}
    """
    values, counts = np.unique(np.asarray([n for n in lengths if n > 0], np.int64), return_counts=True)
    if not len(values):
        return {0: 0}
    ends = np.unique(np.linspace(1, len(values), min(len(values), _CANDIDATE_LENGTHS)).round().astype(np.int64))
    rows = np.concatenate([[0], np.cumsum(counts)])
    best, origin = {0: 0.0}, {0: 0}
    for end in ends.tolist():
        options = {start: best[start] + float(values[end - 1] * (rows[end] - rows[start])) + _FORWARD_COST for start in best}
        origin[end] = min(options, key=lambda start: options[start])
        best[end] = options[origin[end]]
    tops: dict[int, int] = {}
    end = len(values)
    while end:
        tops.update({int(value): int(values[end - 1]) for value in values[origin[end] : end]})
        end = origin[end]
    zero = {0: 0} if any(n == 0 for n in lengths) else {}
    return zero | dict(sorted(tops.items()))


def active_length(active_T: NDArray[np.bool_]) -> int:
    """Positions up to and including the last active one; those after it change nothing."""
    positions = np.flatnonzero(active_T)
    return int(positions[-1]) + 1 if len(positions) else 0


def _cut(model_input: ModelInput) -> tuple[tuple[Chunk, ...], Tokens]:
    chunks = model_input.chunks
    if chunks and isinstance(chunks[-1], TextChunk):
        return chunks[:-1], chunks[-1].tokens
    return chunks, ()


def _best_groups(rows: list[tuple[int, Tokens]], head: int, depth: int) -> list[tuple[list[tuple[int, Tokens]], int]]:
    """(members, shared tail tokens) per group, for rows sorted by tail: together, or apart by the next token, whichever saves more."""
    first, last = rows[0][1], rows[-1][1]
    if len(rows) == 1:
        return [(rows, len(first))]
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    apart: list[tuple[list[tuple[int, Tokens]], int]] = []
    branches = [list(branch) for _, branch in groupby(rows, key=lambda row: row[1][shared : shared + 1])]
    if len(branches) > 1 and depth < _DEEPEST_BRANCH:
        for branch in branches:
            apart += _best_groups(branch, head, depth + 1)
    together = (len(rows) - 1) * (head + shared) if head + shared >= _LEAST_SHARED else 0
    if together and together >= sum((len(part) - 1) * (head + length) for part, length in apart):
        return [(rows, shared)]
    return apart or [([row], len(row[1])) for row in rows]
