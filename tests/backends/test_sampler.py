"""The local sampler against plain transformers calls, and against itself in other company."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from seegrad.backends.local.sampler import LocalSampler, choose, uniforms
from seegrad.errors import BackendError, SamplerError
from seegrad.families.qwen3_vl import FAMILY
from seegrad.models.base import VLM, load_model
from seegrad.models.shared_attention import SharedCache
from seegrad.types import Completion, ModelInput, SamplingParams
from tests.reference import BANNED, plain_inputs, plain_logprobs, plain_model
from tests.tinymodel import ENDOFTEXT, IM_END, image_prompt, picture, tiny_folder

MIXED = (
    image_prompt("how many circles?", picture(0)),
    image_prompt("hello"),
    image_prompt("which of the two pictures is wider than the other?", picture(1), picture(2, 128, 64)),
    image_prompt("?", picture(3, 64, 96)),
)
PARAMS = SamplingParams(max_tokens=16, seed=3)


@pytest.fixture(scope="module")
def vlm() -> VLM:
    return load_model(tiny_folder(), FAMILY)


@pytest.fixture
def own_vlm() -> VLM:
    """A copy that a test may damage."""
    return load_model(tiny_folder(), FAMILY)


def tokens_of(groups: list[list[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.tokens_T for completion in group] for group in groups]


def largest_difference(groups: list[list[Completion]], others: list[list[Completion]]) -> float:
    pairs = [(a, b) for group, other in zip(groups, others, strict=True) for a, b in zip(group, other, strict=True)]
    return max(float(np.abs(a.logprobs_T - b.logprobs_T).max()) for a, b in pairs)


def deviation_from_plain(
    vlm: VLM, prompts: tuple[ModelInput, ...] = MIXED, params: SamplingParams = PARAMS, banned: tuple[int, ...] = BANNED
) -> float:
    """Largest |logprob of the completion - logprob of one plain forward pass over the whole sequence|."""
    folder, worst = tiny_folder(), 0.0
    for prompt, group in zip(prompts, LocalSampler(vlm).sample(prompts, params, 3), strict=True):
        for completion in group:
            temperature = params.temperature or 1.0
            plain = plain_logprobs(plain_model(folder), folder, prompt, completion.tokens_T, temperature=temperature, banned=banned)
            worst = max(worst, float(np.abs(plain - completion.logprobs_T).max()))
    return worst


def test_logprobs_equal_a_plain_forward_pass(vlm: VLM) -> None:
    assert deviation_from_plain(vlm) < 1e-5
    assert deviation_from_plain(vlm, params=SamplingParams(max_tokens=8, temperature=0.7, seed=1)) < 1e-5
    assert deviation_from_plain(vlm, params=SamplingParams(max_tokens=8, temperature=0.0)) < 1e-5
    assert deviation_from_plain(vlm, params=SamplingParams(max_tokens=8, top_p=0.8, top_k=20)) < 1e-5


def test_the_plain_comparison_notices_a_position_off_by_one(own_vlm: VLM) -> None:
    right = own_vlm.extend_shared
    own_vlm.extend_shared = lambda cache, tokens, position: right(cache, tokens, position + 1)  # type: ignore[method-assign]
    assert deviation_from_plain(own_vlm) > 1e-3


def test_the_plain_comparison_notices_attention_to_padding(own_vlm: VLM) -> None:
    right = own_vlm.extend_shared

    def blind(cache: SharedCache, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cache.padding_PL = None
        return right(cache, tokens, position)

    own_vlm.extend_shared = blind  # type: ignore[method-assign]
    assert deviation_from_plain(own_vlm) > 1e-3


def test_the_plain_comparison_notices_banned_mass_that_is_kept(vlm: VLM) -> None:
    assert deviation_from_plain(vlm, banned=()) > 1e-4


def test_the_plain_comparison_notices_another_temperature(vlm: VLM) -> None:
    folder = tiny_folder()
    completion = LocalSampler(vlm).sample(MIXED[:1], SamplingParams(max_tokens=8, temperature=0.7))[0][0]
    plain = plain_logprobs(plain_model(folder), folder, MIXED[0], completion.tokens_T)
    assert np.abs(plain - completion.logprobs_T).max() > 1e-3


def test_a_completion_does_not_depend_on_its_neighbours(vlm: VLM) -> None:
    sampler = LocalSampler(vlm)
    together = sampler.sample(MIXED, PARAMS, 3)
    for index, prompt in enumerate(MIXED):
        alone = sampler.sample([prompt], PARAMS, 3)
        assert tokens_of(alone) == tokens_of([together[index]])
        assert largest_difference(alone, [together[index]]) < 1e-5
        assert tokens_of(sampler.sample([prompt], PARAMS)) == [[together[index][0].tokens_T]]  # fewer samples begin the same
    backwards = sampler.sample(MIXED[::-1], PARAMS, 3)[::-1]
    assert tokens_of(backwards) == tokens_of(together)


def test_small_batches_give_the_same_completions(vlm: VLM) -> None:
    params = SamplingParams(max_tokens=8, seed=3)
    whole = LocalSampler(vlm).sample(MIXED, params, 3)
    for limit in (2, 5):  # 2 splits a prompt's samples
        parts = LocalSampler(vlm, max_sample_batch=limit).sample(MIXED, params, 3)
        assert tokens_of(parts) == tokens_of(whole)
        assert largest_difference(parts, whole) < 1e-5


def test_no_more_rows_than_allowed_decode_at_once(own_vlm: VLM) -> None:
    seen: list[int] = []
    right = own_vlm.extend_shared

    def watched(cache: SharedCache, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        seen.append(len(tokens))
        return right(cache, tokens, position)

    own_vlm.extend_shared = watched  # type: ignore[method-assign]
    LocalSampler(own_vlm, max_sample_batch=6).sample(MIXED, SamplingParams(max_tokens=3), 3)
    assert max(seen) == 6


def test_samples_differ_and_a_call_repeats(vlm: VLM) -> None:
    sampler = LocalSampler(vlm)
    first, again = sampler.sample(MIXED, PARAMS, 4), sampler.sample(MIXED, PARAMS, 4)
    assert tokens_of(first) == tokens_of(again)
    assert largest_difference(first, again) == 0.0
    assert all(len(set(group)) == 4 for group in tokens_of(first))
    other_seed = sampler.sample(MIXED, SamplingParams(max_tokens=16, seed=4), 4)
    assert all(not set(a) & set(b) for a, b in zip(tokens_of(first), tokens_of(other_seed), strict=True))


def test_seeds_of_prompts_replace_the_common_seed(vlm: VLM) -> None:
    sampler = LocalSampler(vlm)
    own = sampler.sample([MIXED[1], MIXED[1]], PARAMS, 2, seeds_P=[3, 2**70])
    assert tokens_of(own)[0] == tokens_of(sampler.sample([MIXED[1]], PARAMS, 2))[0]
    assert tokens_of(own)[0] != tokens_of(own)[1]
    with pytest.raises(SamplerError, match="2 seeds for 1 prompts"):
        sampler.sample([MIXED[1]], PARAMS, seeds_P=[1, 2])


def test_greedy_equals_transformers_generate(vlm: VLM) -> None:
    folder = tiny_folder()
    params = SamplingParams(max_tokens=12, temperature=0.0)
    for prompt, (completion,) in zip(MIXED, LocalSampler(vlm).sample(MIXED, params), strict=True):
        inputs = plain_inputs(folder, prompt)
        generated = plain_model(folder).generate(**inputs, do_sample=False, max_new_tokens=12, suppress_tokens=list(BANNED))
        assert tuple(generated[0, len(prompt) :].tolist()) == completion.tokens_T


@contextmanager
def favoured(vlm: VLM, *ids: int, by: float = 30.0) -> Iterator[None]:
    """The model's logits with `by` added at some ids."""
    bias = torch.zeros(vlm.vocabulary_size)
    bias[list(ids)] = by
    hook = vlm.hf.lm_head.register_forward_hook(lambda _module, _inputs, logits: logits + bias)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("params", [PARAMS, SamplingParams(max_tokens=16, temperature=0.0), SamplingParams(max_tokens=16, top_k=5, top_p=0.9)])
def test_banned_ids_never_come_even_when_the_weights_favour_them(vlm: VLM, params: SamplingParams) -> None:
    with favoured(vlm, *BANNED):
        groups = LocalSampler(vlm).sample(MIXED, params, 4)
        assert not {token for group in groups for completion in group for token in completion.tokens_T} & set(BANNED)
        assert all(np.isfinite(completion.logprobs_T).all() for group in groups for completion in group)
        allowed, vlm.banned_ids = vlm.banned_ids, vlm.banned_ids[:0]  # without the ban the same call writes little else
        try:
            unbanned = LocalSampler(vlm).sample(MIXED, params, 1)
        finally:
            vlm.banned_ids = allowed
    assert all(token in BANNED for group in unbanned for completion in group for token in completion.tokens_T)


def test_stop_ids_end_a_completion_and_have_a_logprob(vlm: VLM) -> None:
    folder = tiny_folder()
    for stop in (IM_END, ENDOFTEXT):  # both are in generation_config.json
        with favoured(vlm, stop, by=6.0):
            groups = LocalSampler(vlm).sample(MIXED, SamplingParams(max_tokens=24), 4)
        completions = [completion for group in groups for completion in group]
        stopped = [completion for completion in completions if completion.stop_reason == "stop"]
        assert len({len(completion.tokens_T) for completion in stopped}) > 2  # rows left at different times
        for completion in completions:
            ended = completion.stop_reason == "stop"
            assert len(completion.logprobs_T) == len(completion.tokens_T)
            assert ended == (completion.tokens_T[-1] == stop)
            assert ended or len(completion.tokens_T) == 24
            assert set(completion.tokens_T[:-1]).isdisjoint({IM_END, ENDOFTEXT})
            assert "<|" not in completion.text
    completion = LocalSampler(vlm).sample(MIXED[:1], SamplingParams(max_tokens=16, seed=3))[0][0]
    middle = completion.tokens_T[5]
    cut = completion.tokens_T[: completion.tokens_T.index(middle) + 1]
    (again,) = LocalSampler(vlm).sample(MIXED[:1], SamplingParams(max_tokens=16, seed=3, stop_token_ids=(middle,)))[0]
    assert again.tokens_T == cut
    assert again.text == vlm.tokenizer.decode(list(cut[:-1]))
    plain = plain_logprobs(plain_model(folder), folder, MIXED[0], cut)
    assert np.abs(plain - again.logprobs_T).max() < 1e-5


def test_rows_that_leave_do_not_disturb_those_that_stay(vlm: VLM) -> None:
    """The same completions whether finished rows are dropped from the batch or each row decodes alone."""
    with favoured(vlm, IM_END, by=4.0):
        together = LocalSampler(vlm).sample(MIXED, SamplingParams(max_tokens=24), 4)
        alone = LocalSampler(vlm, max_sample_batch=1).sample(MIXED, SamplingParams(max_tokens=24), 4)
    assert len({len(tokens) for group in tokens_of(together) for tokens in group}) > 4
    assert tokens_of(together) == tokens_of(alone)
    assert largest_difference(together, alone) < 1e-5


def test_stop_strings_end_after_the_token_that_completes_them(vlm: VLM) -> None:
    sampler = LocalSampler(vlm)
    with favoured(vlm, *b"abc", by=80.0):
        free = sampler.sample(MIXED, SamplingParams(max_tokens=12, temperature=4.0, seed=5), 4)
        stopped = sampler.sample(MIXED, SamplingParams(max_tokens=12, temperature=4.0, seed=5, stop=("cb", "aab")), 4)
    num_stopped = 0
    for before, after in ((b, a) for group, other in zip(free, stopped, strict=True) for b, a in zip(group, other, strict=True)):
        ends = [end for end in range(1, 13) if before.text[:end].endswith(("cb", "aab"))]
        assert after.text == (before.text[: ends[0]] if ends else before.text)
        assert after.stop_reason == ("stop" if ends else "length")
        assert len(after.tokens_T) == len(after.text)
        num_stopped += bool(ends)
    assert 4 < num_stopped < 16


def test_a_completion_of_max_tokens_says_length(vlm: VLM) -> None:
    (completion,) = LocalSampler(vlm).sample(MIXED[1:2], SamplingParams(max_tokens=1))[0]
    assert len(completion.tokens_T) == 1
    assert completion.stop_reason == "length"
    with favoured(vlm, IM_END, by=40.0):
        (completion,) = LocalSampler(vlm).sample(MIXED[1:2], SamplingParams(max_tokens=1))[0]
    assert (completion.tokens_T, completion.stop_reason, completion.text) == ((IM_END,), "stop", "")


def test_a_wrong_image_token_count_names_both_numbers(vlm: VLM) -> None:
    with pytest.raises(SamplerError, match=r"num_tokens=35 .* 36 tokens"):
        LocalSampler(vlm).sample([MIXED[1], image_prompt("how many?", picture(0), num_tokens=35)], PARAMS)


def test_another_picture_changes_the_answer(vlm: VLM) -> None:
    folder = tiny_folder()
    completion = LocalSampler(vlm).sample(MIXED[:1], PARAMS)[0][0]
    swapped = image_prompt("how many circles?", picture(9))
    assert np.abs(plain_logprobs(plain_model(folder), folder, swapped, completion.tokens_T) - completion.logprobs_T).max() > 0.05
    two, reversed_two = MIXED[2], image_prompt("which of the two pictures is wider than the other?", picture(2, 128, 64), picture(1))
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    assert largest_difference(LocalSampler(vlm).sample([two], greedy), LocalSampler(vlm).sample([reversed_two], greedy)) > 1e-3


def test_impossible_requests_are_one_line_errors(vlm: VLM) -> None:
    sampler = LocalSampler(vlm)
    with pytest.raises(SamplerError, match="context of 2048"):
        sampler.sample(MIXED, SamplingParams(max_tokens=2048))
    with pytest.raises(SamplerError, match="stop_token_ids holds 264"):
        sampler.sample(MIXED, SamplingParams(stop_token_ids=(264,)))
    with pytest.raises(SamplerError, match="num_samples"):
        sampler.sample(MIXED, PARAMS, 0)
    assert sampler.sample([], PARAMS, 2) == []


def test_damaged_weights_are_named(own_vlm: VLM) -> None:
    own_vlm.hf.model.language_model.norm.weight.data[0] = torch.nan
    with pytest.raises(BackendError, match="not finite"):
        LocalSampler(own_vlm).sample(MIXED[:1], PARAMS)


def test_weights_view_is_active_only_during_a_call(vlm: VLM) -> None:
    class View:
        def __init__(self) -> None:
            self.events: list[str] = []

        @contextmanager
        def active(self) -> Iterator[None]:
            self.events.append("in")
            with favoured(vlm, IM_END, by=40.0):
                yield
            self.events.append("out")

    view = View()
    sampler = LocalSampler(vlm, 7, view)
    assert sampler.version == 7
    assert sampler.sample(MIXED[:1], PARAMS)[0][0].tokens_T == (IM_END,)
    assert view.events == ["in", "out"]
    assert LocalSampler(vlm).sample(MIXED[:1], PARAMS)[0][0].tokens_T != (IM_END,)


def test_choose_follows_the_distribution() -> None:
    """Evenly spaced uniforms must give each id its probability, to the resolution of the spacing, also across the blocks of the search."""
    logits = torch.randn(300, generator=torch.Generator().manual_seed(0)) * 2
    logits[[7, 130]] = -torch.inf
    count = 20_000
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, logprobs = choose(logits.expand(count, -1), grid, SamplingParams())
    share = torch.bincount(tokens, minlength=300) / count
    assert (share - logits.softmax(-1)).abs().max() < 2 / count
    assert share[[7, 130]].sum() == 0
    torch.testing.assert_close(logprobs, logits.log_softmax(-1)[tokens], atol=2e-6, rtol=0)


def test_choose_at_the_ends_never_takes_an_impossible_id() -> None:
    logits = torch.full((2, 200), -torch.inf)
    logits[:, [70, 150]] = 0.0
    tokens, _ = choose(logits, torch.tensor([0.0, np.nextafter(1.0, 0.0)], dtype=torch.float64), SamplingParams())
    assert tokens.tolist() == [70, 150]


def test_top_k_and_top_p_limit_what_is_drawn() -> None:
    probabilities = torch.tensor([0.05, 0.4, 0.25, 0.2, 0.1])
    grid = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    logits = probabilities.log().expand(1000, -1)

    def shares(**limits: float) -> list[float]:
        tokens, _ = choose(logits, grid, SamplingParams(**limits))  # type: ignore[arg-type]
        return [round(x, 2) for x in (torch.bincount(tokens, minlength=5) / 1000).tolist()]

    assert shares(top_k=2) == [0, 0.62, 0.38, 0, 0]
    assert shares(top_p=0.5) == [0, 0.62, 0.38, 0, 0]  # 0.4 does not reach 0.5, 0.4 + 0.25 does
    assert shares(top_p=0.39) == [0, 1, 0, 0, 0]
    assert shares(top_k=3, top_p=0.5) == [0, 0.62, 0.38, 0, 0]  # of 0.85 left by top_k, half is 0.425
    assert shares(top_k=100) == [0.05, 0.4, 0.25, 0.2, 0.1]


def test_streams_are_of_the_content_alone() -> None:
    stream = uniforms(MIXED[0], 1, 0, 8)
    assert (uniforms(image_prompt("how many circles?", picture(0)), 1, 0, 8) == stream).all()
    assert (uniforms(MIXED[0], 1, 0, 20)[:8] == stream).all()
    others = [(MIXED[0], 2, 0), (MIXED[0], 1, 1), (MIXED[1], 1, 0), (image_prompt("how many circles?", picture(1)), 1, 0)]
    assert all((uniforms(*other, 8) != stream).any() for other in others)
