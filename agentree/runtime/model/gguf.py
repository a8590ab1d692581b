"""A GGUF file -> config.json, model.safetensors and the tokenizer's files."""

import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, dequantize

from agentree.errors import ModelError, Unsupported
from agentree.runtime.model.gguf_tokenizer import convert_tokenizer
from agentree.runtime.model.progress import Report, Step, ignore

Array = np.ndarray[Any, np.dtype[Any]]

FAMILIES: Mapping[str, tuple[str, str]] = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
"""GGUF architecture -> class and model_type of config.json."""

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"
_NAME = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}


class Source:
    """An open GGUF file: its metadata and its tensors by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            reader = GGUFReader(str(path))
            self.meta: dict[str, Any] = {key: field.contents() for key, field in reader.fields.items()}
            self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        except Exception as error:
            raise ModelError(f"{path} is damaged, cut short, or no GGUF file: {error}") from error
        architecture = str(self.meta.get("general.architecture"))
        if architecture not in FAMILIES:
            raise Unsupported(
                f"{path}: GGUF architecture {architecture!r} is not supported; "
                f"supported: {', '.join(FAMILIES)}"
            )
        self.architecture = architecture

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the architecture's own section; ModelError if it is missing and has no default."""
        value = self.meta.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise ModelError(f"{self.path}: the GGUF key '{self.architecture}.{key}' is missing")
        return value


def _number(value: object) -> float:
    """GGUF keeps float32: the shortest decimal that is the same float32 is what was meant."""
    return float(str(np.float32(cast("float", value))))


def _rope_scaling(source: Source, head_dim: int, theta: float) -> dict[str, Any] | None:
    kind = source.meta.get(f"{source.architecture}.rope.scaling.type", "none")
    if kind == "linear":
        return {"rope_type": "linear", "factor": _number(source.get("rope.scaling.factor"))}
    if kind != "none":
        raise Unsupported(f"{source.path}: rope scaling {kind!r} is not supported; supported: linear, llama3")
    tensor = source.tensors.get(_ROPE_FACTORS)
    if tensor is None:
        return None
    # Only the resulting divisors are kept in the file: find Llama 3's rule for them, or refuse.
    divisors = np.asarray(tensor.data, dtype=np.float64).reshape(-1)
    original, low, high, factor = 8192, 1.0, 4.0, float(divisors.max())
    turns = original * theta ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if divisors.shape != turns.shape or not np.allclose(
        1 / divisors, (1 - blend) / factor + blend, rtol=1e-3
    ):
        raise Unsupported(f"{source.path}: the rope divisors in {_ROPE_FACTORS!r} follow no rule known here")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _config(source: Source) -> dict[str, Any]:
    architecture, model_type = FAMILIES[source.architecture]
    heads, hidden = int(source.get("attention.head_count")), int(source.get("embedding_length"))
    head_dim = int(source.get("attention.key_length", hidden // heads))
    if int(source.get("attention.value_length", head_dim)) != head_dim:
        raise Unsupported(f"{source.path}: keys and values of different sizes are not supported")
    if int(source.get("rope.dimension_count", head_dim)) != head_dim:
        raise Unsupported(f"{source.path}: a partial rotary embedding is not supported")
    theta = _number(source.get("rope.freq_base", 10000.0))
    key = "tokenizer.ggml."
    ends = [source.meta.get(key + name) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    end_ids = sorted({end for end in ends if isinstance(end, int)})
    window = source.meta.get(f"{source.architecture}.attention.sliding_window")
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": int(source.tensors["token_embd.weight"].shape[1]),
        "hidden_size": hidden,
        "intermediate_size": int(source.get("feed_forward_length")),
        "num_hidden_layers": int(source.get("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(source.get("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "max_position_embeddings": int(source.get("context_length")),
        "rms_norm_eps": _number(source.get("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(source, head_dim, theta),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in source.tensors,
        "attention_bias": "blk.0.attn_q.bias" in source.tensors,
        "bos_token_id": source.meta.get(key + "bos_token_id"),
        "eos_token_id": end_ids[0] if len(end_ids) == 1 else end_ids or None,
        "torch_dtype": "float16",
    }
    if window:
        config["sliding_window"] = int(window)
    return config


def _target_name(source: Source, name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    match = _NAME.fullmatch(name)
    if match is None or match[2] not in _BLOCK:
        raise Unsupported(f"{source.path}: tensor {name!r} belongs to no architecture supported here")
    return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"


def _unpermute(rows: Array, heads: int) -> Array:
    """Undo GGUF's reordering of Llama's q and k rows: pairs side by side -> the halves of each head."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _storage(tensor: Any) -> str:
    """How a tensor is kept: norms and biases float32, bfloat16 as it is, all else float16 if that is safe.

    Weights of 4 to 8 bits lose nothing that matters by rounding to float16's 11 bits; full floats stay what
    they are unless float16 holds them exactly.
    """
    if len(tensor.shape) == 1:
        return "F32"
    kind = cast("Kind", tensor.tensor_type)
    if kind == Kind.BF16:
        return "BF16"
    if kind in (Kind.F32, Kind.F64):
        values = np.asarray(tensor.data)
        with np.errstate(over="ignore"):
            return "F16" if bool((values.astype(np.float16) == values).all()) else "F32"
    return "F16"


def _values(tensor: Any, storage: str) -> Array:
    kind = cast("Kind", tensor.tensor_type)
    shape = tuple(int(size) for size in reversed(tensor.shape))
    if storage == "BF16":
        return np.asarray(tensor.data).view(np.uint16).reshape(shape)
    if kind in (Kind.F32, Kind.F16, Kind.F64):
        return np.asarray(tensor.data).reshape(shape).astype(np.float32)
    return cast("Array", dequantize(tensor.data, kind)).reshape(shape)


def _finite(values: Array) -> bool:
    if values.dtype == np.uint16:  # bfloat16: all bits of the exponent set is infinity or NaN
        return int((values & 0x7F80).max()) < 0x7F80
    return bool(np.isfinite(values.min()) and np.isfinite(values.max()))


class _Overflow(Exception):
    """A tensor doesn't fit the range of float16."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _write(source: Source, path: Path, storages: Mapping[str, str], report: Callable[[int], None]) -> None:
    """Write the safetensors file tensor by tensor, so that one tensor is in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, storage in storages.items():
        shape = [int(size) for size in reversed(source.tensors[name].shape)]
        size = int(np.prod(shape)) * _SIZES[storage]
        entry = {"dtype": storage, "shape": shape, "data_offsets": [end, end + size]}
        header[_target_name(source, name)] = entry
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    heads, kv_heads = int(source.get("attention.head_count")), int(source.get("attention.head_count_kv"))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for done, (name, storage) in enumerate(storages.items()):
            values = _values(source.tensors[name], storage)
            if not _finite(values):
                raise ModelError(
                    f"{source.path} is damaged: tensor {name!r} holds values that are no finite numbers"
                )
            if storage == "F16":
                if not float(np.abs(values).max()) <= float(np.finfo(np.float16).max):
                    raise _Overflow(name)
                values = values.astype(np.float16)
            match = _NAME.fullmatch(name)
            if source.architecture == "llama" and match and match[2] in ("attn_q", "attn_k"):
                values = _unpermute(values, heads if match[2] == "attn_q" else kv_heads)
            file.write(np.ascontiguousarray(values).data)
            report(done + 1)


def convert(path: Path, folder: Path, progress: Report = ignore) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json into `folder`.

    Raises:
        ModelError: the GGUF file is damaged or incomplete.
        Unsupported: its architecture, tokenizer, quantization or rope scaling is not supported.
    """
    # Reading a vocabulary out of a GGUF file takes seconds by itself.
    progress(Step("convert", path.name, 0, None, "tensors"))
    source = Source(path)
    try:
        config = _config(source)
        tokenizer, settings = convert_tokenizer(source.meta)
        names = [name for name in source.tensors if name != _ROPE_FACTORS]
        storages = {name: _storage(source.tensors[name]) for name in names}

        def report(done: int) -> None:
            progress(Step("convert", path.name, done, len(names), "tensors"))

        while True:
            try:
                _write(source, folder / "model.safetensors", storages, report)
                break
            except _Overflow as overflow:
                storages[overflow.name] = "F32"
    except NotImplementedError as error:
        raise Unsupported(f"{path}: {error}") from error
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelError(f"{path} is damaged or incomplete: {error!r}") from error
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(settings, encoding="utf-8")
