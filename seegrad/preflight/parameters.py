"""How large a model is, from its config.json alone: every weight counted by what it belongs to. No torch.

config.json ─ text_config ───▶ decoder layers, embeddings, head ┐
            └ vision_config ─▶ tower, mergers ──────────────────┴─▶ Shape(num_language, num_vision, linears …)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seegrad.errors import BackendError

KNOWN = ("qwen3_vl", "qwen3_5", "qwen2_5_vl")  # model types whose layers are counted here
_MLP = ("gate_proj", "up_proj", "down_proj", "linear_fc1", "linear_fc2")


@dataclass(frozen=True, slots=True)
class Linear:
    """`count` linear layers of one name: `inputs` × `outputs` weights each."""

    name: str
    inputs: int
    outputs: int
    count: int
    bias: bool = False
    merger: bool = False  # between tower and language model: of no block

    @property
    def part(self) -> str:
        """The word of `model.lora_targets` for it: `mlp`, `attention`, or none."""
        return "" if self.merger else "mlp" if self.name in _MLP else "attention"

    @property
    def num_weights(self) -> int:
        return self.count * (self.inputs * self.outputs + (self.outputs if self.bias else 0))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the memory of a model depends on. Sizes are numbers of elements; `attention` counts the layers that keep keys and values of all positions,
    `recurrent` those that keep a state of fixed size; `queries` and `keys` are the widths of all query heads and of all key-value heads."""

    vocabulary: int
    context: int
    hidden: int
    intermediate: int
    heads: int
    queries: int
    keys: int
    attention: int
    recurrent: int
    recurrent_state: int
    recurrent_width: int
    language_linears: tuple[Linear, ...]
    vision_linears: tuple[Linear, ...]
    num_language: int
    num_embedding: int
    num_vision: int
    vision_hidden: int
    vision_intermediate: int
    vision_depth: int
    vision_levels: int
    patch_pixels: int
    merge: int

    @property
    def layers(self) -> int:
        return self.attention + self.recurrent

    @property
    def num_weights(self) -> int:
        return self.num_language + self.num_embedding + self.num_vision

    def num_lora(self, rank: int, targets: Iterable[str] = (), *, vision: bool = False) -> int:
        """Weights of an adapter: rank × (inputs + outputs) of each adapted layer. No targets: every linear layer of the language model, and of the
        tower with `vision`; a target counts by the last part of its name, or is a word: `attention`, `mlp`, `all-linear`."""
        layers = [*self.language_linears, *(self.vision_linears if vision else ())]
        names = {target.rsplit(".", 1)[-1] for target in targets}
        head = [Linear("lm_head", self.hidden, self.vocabulary, 1), Linear("embed_tokens", self.vocabulary, self.hidden, 1)]
        chosen = [layer for layer in layers if {layer.name, layer.part, "all-linear"} & names] if names else layers
        chosen += [layer for layer in head if layer.name in names]
        return sum(layer.count * rank * (layer.inputs + layer.outputs) for layer in chosen)


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape that a config.json describes. Raises BackendError for a model type whose layers are not known here, or a missing number."""
    model_type = str(config.get("model_type", ""))
    if model_type not in KNOWN:
        raise BackendError(f"the weights of model type {model_type!r} cannot be counted; known: {', '.join(KNOWN)}")
    try:
        # Older files of Qwen2.5-VL have the settings of the language model at the top.
        text = config.get("text_config", config) if model_type == "qwen2_5_vl" else config["text_config"]
        return _shape(config, text, config["vision_config"])
    except KeyError as error:
        raise BackendError(f"config.json of a {model_type} model has no {error.args[0]!r}; give a whole Hugging Face model folder") from None


def _shape(config: Mapping[str, Any], text: Mapping[str, Any], vision: Mapping[str, Any]) -> Shape:
    hidden, layers, heads = int(text["hidden_size"]), int(text["num_hidden_layers"]), int(text["num_attention_heads"])
    size = int(text.get("head_dim") or hidden // heads)
    kinds = text.get("layer_types") or _default_kinds(config, text, layers)
    recurrent = sum(kind == "linear_attention" for kind in kinds)
    attention = layers - recurrent
    queries, keys = heads * size, int(text["num_key_value_heads"]) * size
    gated = config["model_type"] == "qwen3_5"  # the query projection carries the output gate too
    plain = config["model_type"] == "qwen2_5_vl"  # biases instead of norms on queries and keys
    bias = bool(text.get("attention_bias", False))
    intermediate = int(text["intermediate_size"])
    linears = [
        Linear("q_proj", hidden, queries * (2 if gated else 1), attention, bias or plain),
        Linear("k_proj", hidden, keys, attention, bias or plain),
        Linear("v_proj", hidden, keys, attention, bias or plain),
        Linear("o_proj", queries, hidden, attention, bias),
        Linear("gate_proj", hidden, intermediate, layers),
        Linear("up_proj", hidden, intermediate, layers),
        Linear("down_proj", intermediate, hidden, layers),
    ]
    others = layers * 2 * hidden + (0 if plain else attention * 2 * size) + hidden
    state = width = 0
    if recurrent:
        key, value = (int(text[f"linear_num_{part}_heads"]) * int(text[f"linear_{part}_head_dim"]) for part in ("key", "value"))
        value_heads, kernel = int(text["linear_num_value_heads"]), int(text["linear_conv_kernel_dim"])
        linears += [
            Linear("in_proj_qkv", hidden, 2 * key + value, recurrent),
            Linear("in_proj_z", hidden, value, recurrent),
            Linear("in_proj_b", hidden, value_heads, recurrent),
            Linear("in_proj_a", hidden, value_heads, recurrent),
            Linear("out_proj", value, hidden, recurrent),
        ]
        others += recurrent * ((2 * key + value) * kernel + 2 * value_heads + int(text["linear_value_head_dim"]))
        state = value * int(text["linear_key_head_dim"]) + (2 * key + value) * kernel
        width = 2 * key + 2 * value
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    vocabulary = int(text["vocab_size"])
    tower = _windowed_tower(vision) if plain else _tower(vision)
    return Shape(
        vocabulary=vocabulary,
        context=int(text["max_position_embeddings"]),
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        queries=queries,
        keys=keys,
        attention=attention,
        recurrent=recurrent,
        recurrent_state=state,
        recurrent_width=width,
        language_linears=tuple(layer for layer in linears if layer.count),
        num_language=sum(layer.num_weights for layer in linears) + others,
        num_embedding=vocabulary * hidden * (1 if tied else 2),
        **tower,
    )


def _default_kinds(config: Mapping[str, Any], text: Mapping[str, Any], layers: int) -> list[str]:
    """Layer kinds that a config may leave out: of Qwen3.5 every fourth layer (`full_attention_interval`) attends, the others are recurrent."""
    if config["model_type"] != "qwen3_5":
        return ["full_attention"] * layers
    interval = int(text.get("full_attention_interval", 4))
    return ["full_attention" if (number + 1) % interval == 0 else "linear_attention" for number in range(layers)]


def _tower(vision: Mapping[str, Any]) -> dict[str, Any]:
    hidden, depth, intermediate = int(vision["hidden_size"]), int(vision["depth"]), int(vision["intermediate_size"])
    merge, levels = int(vision["spatial_merge_size"]), len(vision.get("deepstack_visual_indexes") or [])
    patch_pixels = int(vision.get("in_channels", 3)) * int(vision["temporal_patch_size"]) * int(vision["patch_size"]) ** 2
    merged, out = hidden * merge**2, int(vision["out_hidden_size"])
    mergers = 1 + levels
    linears = (
        Linear("qkv", hidden, 3 * hidden, depth, True),
        Linear("proj", hidden, hidden, depth, True),
        Linear("linear_fc1", hidden, intermediate, depth, True),
        Linear("linear_fc2", intermediate, hidden, depth, True),
        Linear("linear_fc1", merged, merged, mergers, True, merger=True),
        Linear("linear_fc2", merged, out, mergers, True, merger=True),
    )
    norms = depth * 4 * hidden + 2 * hidden + levels * 2 * merged  # the deepstack mergers normalise what is already merged
    patches = patch_pixels * hidden + hidden + int(vision["num_position_embeddings"]) * hidden
    return {
        "vision_linears": linears,
        "num_vision": sum(layer.num_weights for layer in linears) + norms + patches,
        "vision_hidden": hidden,
        "vision_intermediate": intermediate,
        "vision_depth": depth,
        "vision_levels": mergers,
        "patch_pixels": patch_pixels,
        "merge": merge,
    }


def _windowed_tower(vision: Mapping[str, Any]) -> dict[str, Any]:
    """The tower of Qwen2.5-VL: gated feed-forward layers, norms without biases, no learnt positions."""
    hidden, depth, intermediate = int(vision["hidden_size"]), int(vision["depth"]), int(vision["intermediate_size"])
    merge, out = int(vision["spatial_merge_size"]), int(vision["out_hidden_size"])
    patch_pixels = int(vision.get("in_channels", 3)) * int(vision.get("temporal_patch_size", 2)) * int(vision["patch_size"]) ** 2
    merged = hidden * merge**2
    linears = (
        Linear("qkv", hidden, 3 * hidden, depth, True),
        Linear("proj", hidden, hidden, depth, True),
        Linear("gate_proj", hidden, intermediate, depth, True),
        Linear("up_proj", hidden, intermediate, depth, True),
        Linear("down_proj", intermediate, hidden, depth, True),
        Linear("0", merged, merged, 1, True, merger=True),
        Linear("2", merged, out, 1, True, merger=True),
    )
    return {
        "vision_linears": linears,
        "num_vision": sum(layer.num_weights for layer in linears) + depth * 2 * hidden + hidden + patch_pixels * hidden,
        "vision_hidden": hidden,
        "vision_intermediate": intermediate,
        "vision_depth": depth,
        "vision_levels": 1,
        "patch_pixels": patch_pixels,
        "merge": merge,
    }
