"""What config.json says of a model, and which architectures the decoder runs."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from agentree.errors import ModelError, Unsupported


@dataclass(frozen=True)
class Architecture:
    """How a family differs from the plain Llama decoder. None: config.json decides (`attention_bias`)."""

    qkv_bias: bool | None = None
    output_bias: bool | None = None
    qk_norm: bool = False
    """RMSNorm over each head of q and k, before the rotation."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": Architecture(),
    "MistralForCausalLM": Architecture(qkv_bias=False, output_bias=False),
    "Qwen2ForCausalLM": Architecture(qkv_bias=True, output_bias=False),
    "Qwen3ForCausalLM": Architecture(qk_norm=True),
}


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: its base and how long contexts stretch it."""

    theta: float = 10000.0
    kind: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of a decoder-only transformer. Lengths in tokens."""

    architecture: str
    vocab_size: int
    """Rows of the embedding and width of the logits; a tokenizer may know fewer ids."""
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    """Positions the model was made for; a sliding window that is in use limits it."""
    norm_eps: float
    rope: Rope
    tied: bool
    """The output projection is the embedding itself."""
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    bos_id: int | None
    end_ids: frozenset[int]
    """Ids that config.json and generation_config.json name as the end of a text."""

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V that one token takes in all layers, per byte of an element."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def read_json(path: Path) -> dict[str, Any]:
    """Parse a file that must hold a JSON object; ModelError names the file otherwise."""
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the folder is no complete model") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"{path} can't be read as JSON ({error}): the file is damaged") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object: the file is damaged")
    return cast("dict[str, Any]", value)


class _Reader:
    """Typed access to config.json whose errors name the file and the key."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{self.path}: {key!r} must be a positive integer, not {value!r}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ModelError(f"{self.path}: {key!r} must be a positive number, not {value!r}")
        return float(value)

    def flag(self, key: str) -> bool:
        return bool(self.values.get(key, False))


def _ids(value: object) -> list[int]:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [item for item in items if isinstance(item, int)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []


def _rope(path: Path, values: Mapping[str, Any]) -> Rope:
    """Both spellings: `rope_theta` + `rope_scaling` of transformers 4, `rope_parameters` of 5."""
    raw: object = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: the rope parameters must be an object, not {raw!r}")
    given = _Reader(path, cast("dict[str, Any]", raw))
    theta = given.number("rope_theta", _Reader(path, values).number("rope_theta", 10000.0))
    kind = str(given.values.get("rope_type") or given.values.get("type") or "default")
    partial = given.number(
        "partial_rotary_factor", _Reader(path, values).number("partial_rotary_factor", 1.0)
    )
    if partial != 1.0:
        raise Unsupported(f"{path}: a partial rotary embedding ({partial}) is not supported")
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, "linear", given.number("factor", 1.0))
    if kind == "llama3":
        return Rope(
            theta,
            "llama3",
            given.number("factor", 8.0),
            given.number("low_freq_factor", 1.0),
            given.number("high_freq_factor", 4.0),
            given.integer("original_max_position_embeddings", 8192),
        )
    raise Unsupported(f"{path}: rope scaling {kind!r} is not supported; supported: default, linear, llama3")


def _context(reader: _Reader) -> int:
    """Inside its window sliding attention is full attention, so a window in use bounds the context."""
    context = reader.integer("max_position_embeddings", 2048)
    window = reader.values.get("sliding_window")
    layer_types = cast("list[object]", reader.values.get("layer_types") or [])
    in_use = reader.values.get("use_sliding_window", not layer_types) or "sliding_attention" in layer_types
    return min(context, reader.integer("sliding_window")) if window is not None and in_use else context


def read_config(folder: Path) -> ModelConfig:
    """Read config.json (and the end ids of generation_config.json, where there is one).

    Raises:
        ModelError: a file is missing or damaged, or a value makes no sense.
        Unsupported: the architecture, its activation or its rope scaling is not among the supported ones.
    """
    path = folder / "config.json"
    values = read_json(path)
    reader = _Reader(path, values)
    names: object = values.get("architectures") or []
    if not isinstance(names, list):
        raise ModelError(f"{path}: 'architectures' must be a list of names, not {names!r}")
    name = str(cast("list[object]", names)[0]) if names else str(values.get("model_type", "unknown"))
    family = ARCHITECTURES.get(name)
    if family is None:
        raise Unsupported(
            f"{path}: architecture {name!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    activation = values.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise Unsupported(f"{path}: activation {activation!r} is not supported; supported: silu")
    if values.get("quantization_config"):
        raise Unsupported(f"{path}: quantized weights are only read from .gguf files")
    heads, hidden = reader.integer("num_attention_heads"), reader.integer("hidden_size")
    kv_heads, head_dim = (
        reader.integer("num_key_value_heads", heads),
        reader.integer("head_dim", hidden // heads),
    )
    if heads % kv_heads or head_dim % 2:
        raise ModelError(f"{path}: {heads} heads of {head_dim} don't fit {kv_heads} key-value heads")
    end_ids = set(_ids(values.get("eos_token_id")))
    generation = folder / "generation_config.json"
    if generation.exists():
        end_ids.update(_ids(read_json(generation).get("eos_token_id")))
    bos = _ids(values.get("bos_token_id"))
    bias = reader.flag("attention_bias")
    return ModelConfig(
        architecture=name,
        vocab_size=reader.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=reader.integer("intermediate_size"),
        layers=reader.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=_context(reader),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        rope=_rope(path, values),
        tied=reader.flag("tie_word_embeddings"),
        qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
        output_bias=bias if family.output_bias is None else family.output_bias,
        mlp_bias=reader.flag("mlp_bias"),
        qk_norm=family.qk_norm,
        bos_id=bos[0] if bos else None,
        end_ids=frozenset(end_ids),
    )
