"""How much memory a run of the local backend needs, from config.json and the settings alone. Nothing is loaded; no torch.

    peak = weights + what trains (gradients, Adam, copies) + kept pictures + process + the largest of the phases
    phases:  sampling   keys and values, logits, prefill         (rollout or evaluation, whichever is larger; every answer as long as it may be)
             training   activations, keys and values, logits     (the largest micro-batch)
             update     temporaries of the optimizer

Counts of weights are exact; what is alive during a phase is counted from what the layers keep for the backward pass.
docs/doctor.md compares it with measured peaks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from seegrad.config import Config
from seegrad.preflight.parameters import Shape

_BYTES = {"float32": 4, "bfloat16": 2}
_FLOAT = 4  # bytes of float32: adapters, Adam's moments, logits
_ADAM = 8  # two moments in float32
_PICTURE_STORE = 256 << 20  # what the local backend keeps of pictures at most
_LOGIT_CELLS = 1 << 25  # logits that the trainer makes at once
_LOGIT_COPIES = 5  # scaled, banned, log-softmax, its exponent, a gradient
_SAMPLE_COPIES = 3  # logits, weights, sums
_SORTED_BYTES = 36  # more for each logit when top-p or top-k sorts them
_FIRST_ROOM = 32  # positions of a row's own cache, doubled when full
_PATCHES_PER_CALL = 1 << 14
_PROCESS = {"cpu": 500 << 20, "cuda": 700 << 20}  # libraries; the CUDA context
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Lengths:
    """What the prompts of a run look like, in tokens: the longest prompt, picture tokens of the largest prompt, and of the average picture;
    `num_pictures` is how many different pictures the run shows."""

    prompt: int
    picture: int = 0
    mean_picture: float = 0.0
    num_pictures: int = 0


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes by what they are for. `peak` is what must be free; `certain` the part that is known exactly and held all the time."""

    weights: int
    trained: int
    pictures: int
    process: int
    sampling: int
    training: int
    update: int
    num_weights: int
    num_trained: int
    device: str

    @property
    def peak(self) -> int:
        return self.certain + self.pictures + self.process + max(self.sampling, self.training, self.update)

    @property
    def certain(self) -> int:
        return self.weights + self.trained

    @property
    def phase(self) -> str:
        """The phase that needs the most."""
        phases = {"sampling": self.sampling, "training": self.training, "update": self.update}
        return max(phases, key=lambda name: phases[name])

    def table(self) -> str:
        """One line per part, in GiB."""
        rows = [
            ("weights", self.weights, f"{self.num_weights / 1e6:,.1f} million"),
            ("what trains", self.trained, f"{self.num_trained / 1e6:,.1f} million weights with gradients and Adam's moments"),
            ("pictures", self.pictures, "patches and features that are kept"),
            ("process", self.process, "libraries" if self.device == "cpu" else "CUDA context"),
            ("sampling", self.sampling, "keys and values, logits, prefill"),
            ("training", self.training, "activations, keys and values, logits of the largest micro-batch"),
            ("update", self.update, "temporaries of the optimizer"),
        ]
        lines = [f"{name:14}{size / GIB:9.2f} GiB  {what}" for name, size, what in rows]
        return "\n".join([*lines, f"{'peak':14}{self.peak / GIB:9.2f} GiB  on {self.device}; {self.phase} is the largest of the last three"])

    def facts(self) -> Mapping[str, int | str]:
        """The same for machines, in bytes."""
        names = (
            "weights",
            "trained",
            "pictures",
            "process",
            "sampling",
            "training",
            "update",
            "num_weights",
            "num_trained",
            "device",
            "peak",
            "phase",
        )
        return {name: getattr(self, name) for name in names}


def footprint(shape: Shape, config: Config, lengths: Lengths, device: str) -> Footprint:
    """The estimate for a run of `config` with prompts of `lengths` on `device` ("cpu" or "cuda")."""
    model, size = config.model, _BYTES[config.model.dtype]
    full = model.train == "full"
    tower = shape.num_vision if model.train_vision else 0
    num_trained = (
        shape.num_language + shape.num_embedding + tower if full else shape.num_lora(model.lora_rank, model.lora_targets, vision=model.train_vision)
    )
    per_weight = (size if full else _FLOAT) + _ADAM  # gradient and moments
    extra = 0 if full else _FLOAT  # the adapter itself comes on top of the weights
    extra += 2 * _FLOAT if full and size < _FLOAT else 0  # a float32 copy that is stepped, and its gradient
    extra += size if full and config.algorithm.kl_coef else 0  # the reference is a copy of what trains
    update = num_trained * _FLOAT * (2 if full and size < _FLOAT else 1)
    pictures = _pictures(shape, lengths, size, frozen=not model.train_vision)
    return Footprint(
        weights=shape.num_weights * size,
        trained=num_trained * (per_weight + extra),
        pictures=pictures,
        process=_PROCESS[device],
        sampling=max(_rollout_sampling(shape, config, lengths, size), _eval_sampling(shape, config, lengths, size)),
        training=_training(shape, config, lengths, size),
        update=update,
        num_weights=shape.num_weights,
        num_trained=num_trained,
        device=device,
    )


def _pictures(shape: Shape, lengths: Lengths, size: int, *, frozen: bool) -> int:
    patches = lengths.mean_picture * shape.merge**2
    features = lengths.mean_picture * shape.hidden * shape.vision_levels * size if frozen else 0
    return int(min(_PICTURE_STORE, lengths.num_pictures * (patches * shape.patch_pixels * _FLOAT + features)))


def _rollout_sampling(shape: Shape, config: Config, lengths: Lengths, size: int) -> int:
    rollout = config.rollout
    rows = min(config.model.max_sample_batch, rollout.questions_per_step * rollout.group_size)
    prompts = max(1, min(rollout.questions_per_step, rows // rollout.group_size))
    return _sampling(shape, lengths, size, rows, prompts, rollout.max_tokens, sorts=rollout.top_p < 1 or rollout.top_k > 0)


def _eval_sampling(shape: Shape, config: Config, lengths: Lengths, size: int) -> int:
    settings = config.eval
    prompts = min(settings.batch_size, settings.num_items, config.model.max_sample_batch)
    rows = min(config.model.max_sample_batch, prompts * settings.samples)
    return _sampling(shape, lengths, size, rows, prompts, settings.max_tokens or config.rollout.max_tokens, sorts=False)


def _sampling(shape: Shape, lengths: Lengths, size: int, rows: int, prompts: int, tokens: int, *, sorts: bool) -> int:
    """`rows` answers of `tokens` to `prompts` prompts, decoded together. Prefill is over before the answers grow, so the larger of the two counts."""
    room = _FIRST_ROOM * 2 ** max(0, math.ceil(math.log2(tokens / _FIRST_ROOM)))
    per_position = shape.attention * 2 * shape.keys * size
    cache = prompts * lengths.prompt * per_position
    own = rows * room * per_position + rows * shape.recurrent * shape.recurrent_state * _FLOAT
    growing = rows * room * 2 * shape.keys * size if shape.attention else 0  # one layer at a time moves into twice the room
    scores = 3 * rows * shape.heads * (lengths.prompt + room) * _FLOAT
    widened = 2 * shape.keys * (rows * room + prompts * lengths.prompt) * _FLOAT if size < _FLOAT else 0  # one layer's keys and values in float32
    logits = rows * shape.vocabulary * (_SAMPLE_COPIES * _FLOAT + (_SORTED_BYTES if sorts else 0))
    prefill = prompts * lengths.prompt * (4 * shape.hidden + 4 * shape.queries + 3 * shape.intermediate) * size
    tower = min(_PATCHES_PER_CALL, prompts * lengths.picture * shape.merge**2) * (8 * shape.vision_hidden + 2 * shape.vision_intermediate) * size
    return int(cache + max(own + growing + scores + widened + logits, prefill, tower))


def _training(shape: Shape, config: Config, lengths: Lengths, size: int) -> int:
    """The largest micro-batch when every answer is as long as it may be."""
    tokens, rows, groups = micro_batch(config, lengths.prompt)
    model = config.model
    attention, recurrent = _layer_bytes(shape, model.train == "full", model.lora_rank, size)
    backward = (4 * shape.hidden + 3 * shape.intermediate) * size  # gradients inside the one layer that is being walked through
    activations = tokens * (shape.attention * attention + shape.recurrent * recurrent + backward)
    # A completion attends to its whole prompt and itself: its keys and values are laid out once more, for all query heads when heads share them.
    width = shape.keys if shape.queries == shape.keys else shape.queries
    context = rows * (lengths.prompt + config.rollout.max_tokens) * shape.attention * 2 * width * size
    scored = min(rows * config.rollout.max_tokens, max(1, _LOGIT_CELLS // shape.vocabulary))
    logits = scored * shape.vocabulary * (_LOGIT_COPIES * _FLOAT + (size if size < _FLOAT else 0))
    patches = groups * lengths.picture * shape.merge**2
    if model.train_vision:
        kept = shape.vision_depth * (12 * shape.vision_hidden + 2 * shape.vision_intermediate) + shape.vision_levels * 4 * shape.vision_hidden
        tower = patches * kept * size
    else:
        tower = groups * lengths.picture * shape.hidden * shape.vision_levels * size
    return int(activations + context + logits + tower)


def micro_batch(config: Config, prompt: int) -> tuple[int, int, int]:
    """(positions, completions, prompts) of the largest micro-batch of a step: as many whole groups as fit into `max_train_tokens`, or a part of one.

    >>> micro_batch(Config(), 100)  # 32 questions, 8 answers of up to 64 tokens each, 16,384 tokens
    (15912, 208, 26)
    """
    rollout, limit = config.rollout, config.model.max_train_tokens
    whole = prompt + rollout.group_size * rollout.max_tokens
    if whole <= limit:
        groups = min(rollout.questions_per_step, limit // whole)
        return groups * whole, groups * rollout.group_size, groups
    rows = min(rollout.group_size, max(1, (limit - prompt) // rollout.max_tokens))
    return prompt + rows * rollout.max_tokens, rows, 1


def _layer_bytes(shape: Shape, full: bool, rank: int, size: int) -> tuple[int, int]:
    """Bytes that an attention layer and a recurrent layer keep of one position for the backward pass.

    Norms keep their input in float32 (and its normalised form where the norm's weight trains), attention its query and output, the gated product its
    three factors, and a linear layer its input: once per distinct input, or in float32 for every layer of a float32 adapter over narrower weights.
    """
    hidden, queries, keys, inner = shape.hidden, shape.queries, shape.keys, shape.intermediate
    normed = _FLOAT + (size if full else 0)
    shared = 2 * hidden * normed + 3 * inner * size
    attention = shared + (queries + keys) * normed + 2 * queries * size
    recurrent = shared + 6 * shape.recurrent_width * _FLOAT
    if full or size == _FLOAT:
        inputs = (2 * hidden + inner) * size
        return attention + inputs + queries * size + _adapter(7, rank, full), recurrent + inputs + shape.recurrent_width * size + _adapter(
            8, rank, full
        )
    inputs = (5 * hidden + inner) * _FLOAT
    return attention + inputs + queries * _FLOAT + _adapter(7, rank, full), recurrent + inputs + (hidden + shape.recurrent_width) * _FLOAT


def _adapter(layers: int, rank: int, full: bool) -> int:
    return 0 if full else layers * rank * _FLOAT
