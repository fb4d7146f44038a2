"""Opening models: bases, adapters, whole folders, devices, and what goes wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from seegrad import registry
from seegrad.backends.base import Backend, Policy, Sampler
from seegrad.backends.local.backend import LocalBackend, choose_device, open_backend
from seegrad.config import ModelConfig
from seegrad.errors import BackendError, UsageError
from seegrad.types import AdamParams, Datum, LossSpec, ModelInput, SamplingParams
from tests.tinymodel import image_prompt, picture, text_tokens, tiny_folder

PROMPT = image_prompt("how many?", picture(0))
PARAMS = SamplingParams(max_tokens=6)


def config(**values: object) -> ModelConfig:
    return ModelConfig.model_validate({"base": str(tiny_folder()), "device": "cpu", "lora_rank": 4, **values})


def train(policy: Policy) -> None:
    answer = text_tokens("seven")
    whole: ModelInput = PROMPT + answer[:-1]
    targets = np.zeros(len(whole), np.int64)
    weights = np.zeros(len(whole), np.float32)
    targets[-len(answer) :] = answer
    weights[-len(answer) :] = 1.0
    policy.forward_backward([Datum(whole, targets, {"weights": weights})], LossSpec("cross_entropy"))
    policy.optim_step(AdamParams(learning_rate=1e-2))


def test_the_registry_opens_it() -> None:
    backend = registry.load("backend", "local")("local:")
    assert isinstance(backend, Backend)
    assert {"sample", "train", "lora", "full"} <= backend.capabilities
    with pytest.raises(UsageError, match="takes no address"):
        open_backend("local:somewhere")


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_saved_weights_open_as_the_sampler_that_the_policy_gave(kind: str, tmp_path: Path) -> None:
    backend = LocalBackend()
    model = config(train=kind)
    policy = backend.create(model, seed=1)
    base = backend.sampler(model)
    assert isinstance(policy, Policy)
    assert isinstance(base, Sampler)
    assert base.version == 0
    train(policy)
    policy.save_weights(tmp_path / "weights")
    mine, saved, untrained = (
        sampler.sample([PROMPT], PARAMS, 3)[0] for sampler in (policy.sampler(), backend.sampler(model, tmp_path / "weights"), base)
    )
    assert [c.tokens_T for c in mine] == [c.tokens_T for c in saved]
    assert max(np.abs(a.logprobs_T - b.logprobs_T).max() for a, b in zip(mine, saved, strict=True)) < 1e-4
    # The comparison can fail: the base says something else.
    assert any(a.tokens_T != b.tokens_T or np.abs(a.logprobs_T - b.logprobs_T).max() > 1e-3 for a, b in zip(mine, untrained, strict=True))
    backend.close()


def test_sampler_logprobs_equal_those_of_its_completions() -> None:
    sampler = LocalBackend().sampler(config())
    (completion,) = sampler.sample([PROMPT], SamplingParams(max_tokens=6, temperature=0.8))[0]
    whole = PROMPT + completion.tokens_T[:-1]
    targets = np.zeros(len(whole), np.int64)
    mask = np.zeros(len(whole), np.float32)
    targets[len(PROMPT) - 1 :] = completion.tokens_T
    mask[len(PROMPT) - 1 :] = 1.0
    datum = Datum(whole, targets, {"mask": mask})
    (logprobs,) = sampler.logprobs([datum], 0.8)
    assert np.abs(logprobs[len(PROMPT) - 1 :] - completion.logprobs_T).max() < 1e-5
    assert not logprobs[: len(PROMPT) - 1].any()
    (otherwise,) = sampler.logprobs([datum], 1.0)
    assert np.abs(otherwise[len(PROMPT) - 1 :] - completion.logprobs_T).max() > 1e-3


def test_pictures_are_kept_and_bfloat16_loads() -> None:
    sampler = LocalBackend().sampler(config(dtype="bfloat16"))
    first, again = sampler.sample([PROMPT], PARAMS)[0][0], sampler.sample([PROMPT], PARAMS)[0][0]
    assert first.tokens_T == again.tokens_T
    assert np.isfinite(first.logprobs_T).all()


def test_what_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    backend = LocalBackend()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BackendError, match=r"neither adapter_config\.json nor config\.json"):
        backend.sampler(config(), tmp_path / "empty")
    with pytest.raises(BackendError, match=r"no config\.json"):
        backend.create(config(base=str(tmp_path / "empty")))
    broken = tmp_path / "broken"
    shutil.copytree(tiny_folder(), broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(BackendError, match="cannot load the model") as caught:
        backend.sampler(config(base=str(broken)))
    assert "\n" not in str(caught.value)
    with pytest.raises(BackendError, match=r"model\.device='gpu0'"):
        backend.create(config(device="gpu0"))


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
