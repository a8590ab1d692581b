"""Weights of a folder -> a decoder: names, merged projections, storage."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar, cast

import torch

from agentree.runtime.model.compiled import CompiledStack
from agentree.runtime.model.config import ModelConfig
from agentree.runtime.model.decoder import Decoder
from agentree.runtime.model.linear import DTYPES, Linear, Storage, fits_half, make_linear
from agentree.runtime.model.packed import Packed, alternate
from agentree.runtime.model.rope import RotaryTable, interleave
from agentree.runtime.model.stack import Layer, Parts, TorchStack
from agentree.runtime.model.threads import most_threads
from agentree.runtime.model.weights import Weights
from agentree.runtime.native.library import Library

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

L = TypeVar("L", bound=Linear)
L_co = TypeVar("L_co", bound=Linear, covariant=True)


class Maker(Protocol[L_co]):
    """Puts weights [outputs, inputs] where and how they will be used."""

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> L_co: ...

    def gate_up(self, weight: torch.Tensor, bias: torch.Tensor | None) -> L_co:
        """The same for gates and, behind them, their ups."""
        ...


class TorchMaker:
    """For `TorchStack`."""

    def __init__(self, storage: Storage, device: torch.device) -> None:
        self._storage: Storage = storage
        self._device = device

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        """See `Maker`."""
        return make_linear(weight, bias, self._storage, self._device)

    gate_up = linear


class PackedMaker:
    """For `CompiledStack`."""

    def __init__(self, storage: Storage, library: Library) -> None:
        self._storage: Storage = storage
        self._library = library

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Packed:
        """See `Maker`."""
        return Packed(weight, bias, self._storage, self._library)

    def gate_up(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Packed:
        """See `Maker`."""
        return self.linear(alternate(weight), None if bias is None else alternate(bias))


class _Builder(Generic[L]):
    """Takes tensors by name, each exactly once, so that no second copy of a weight stays alive.

    Several threads may build layers at once.
    """

    def __init__(
        self, config: ModelConfig, weights: Weights, storage: Storage, device: torch.device, maker: Maker[L]
    ) -> None:
        self.config = config
        self.make = maker
        self.weights = weights
        self.storage: Storage = storage
        self.device = device
        self.dtype = compute_dtype(storage, device)
        self.limit = torch.finfo(DTYPES[storage]).max

    def norm(self, name: str, size: int) -> torch.Tensor:
        tensor = self.weights.take(name, size, limit=torch.finfo(self.dtype).max)
        return tensor.to(self.device, self.dtype)

    def merged(
        self, names: list[str], sizes: list[int], inputs: int, *, bias: bool, turned: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of several projections; the first `turned` are reordered for the rotation."""
        heads = self.config.head_dim
        matrices = [
            self.weights.take(f"{n}.weight", s, inputs, limit=self.limit)
            for n, s in zip(names, sizes, strict=True)
        ]
        matrices = [interleave(m, heads) if i < turned else m for i, m in enumerate(matrices)]
        vector: torch.Tensor | None = None
        if bias:
            vectors = [
                self.weights.take(f"{n}.bias", s, limit=torch.finfo(self.dtype).max)
                for n, s in zip(names, sizes, strict=True)
            ]
            vector = torch.cat([interleave(v, heads) if i < turned else v for i, v in enumerate(vectors)])
        return torch.cat(matrices), vector

    def layer(self, number: int) -> Layer[L]:
        config = self.config
        at, hidden, inner = f"model.layers.{number}", config.hidden_size, config.intermediate_size
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        return Layer(
            attention_norm=self.norm(f"{at}.input_layernorm.weight", hidden),
            qkv=self.make.linear(
                *self.merged(
                    [f"{at}.self_attn.{name}_proj" for name in ("q", "k", "v")],
                    [q, kv, kv],
                    hidden,
                    bias=config.qkv_bias,
                    turned=2,
                )
            ),
            qk_norm=self.qk_norm(f"{at}.self_attn") if config.qk_norm else None,
            output=self.make.linear(
                *self.merged([f"{at}.self_attn.o_proj"], [hidden], q, bias=config.output_bias)
            ),
            mlp_norm=self.norm(f"{at}.post_attention_layernorm.weight", hidden),
            gate_up=self.make.gate_up(
                *self.merged(
                    [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"], [inner, inner], hidden, bias=config.mlp_bias
                )
            ),
            down=self.make.linear(
                *self.merged([f"{at}.mlp.down_proj"], [hidden], inner, bias=config.mlp_bias)
            ),
        )

    def qk_norm(self, at: str) -> torch.Tensor:
        config = self.config
        q, k = (
            interleave(self.norm(f"{at}.{n}_norm.weight", config.head_dim), config.head_dim) for n in "qk"
        )
        return torch.cat([q.expand(config.heads, -1), k.expand(config.kv_heads, -1)])


def compute_dtype(storage: Storage, device: torch.device) -> torch.dtype:
    """What activations, keys and values are kept in."""
    return torch.float32 if device.type == "cpu" else DTYPES[storage]


def choose_storage(weights: Weights, requested: str, device: torch.device) -> Storage:
    """What "auto" means: on a CPU fp16 if that loses nothing that counts of the stored weights, else fp32.

    bf16 and int8 are faster again and change what the model says: they are never "auto".
    On a GPU it is the dtype that the weights are stored in.
    """
    if requested != "auto":
        return cast("Storage", requested)
    if device.type == "cpu":
        matrices = [
            name for name in weights.names() if name.endswith("_proj.weight") or name in (EMBEDDING, HEAD)
        ]
        return "fp16" if all(fits_half(weights.load(name)) for name in matrices) else "fp32"
    stored = weights.load(EMBEDDING).dtype
    return "fp16" if stored == torch.float16 else "bf16" if stored == torch.bfloat16 else "fp32"


def build_decoder(
    config: ModelConfig,
    weights: Weights,
    *,
    storage: Storage,
    device: torch.device,
    positions: int,
    library: Library | None,
    report: Callable[[int], None],
) -> Decoder:
    """Read every tensor the config asks for and put it in place.

    `positions`: length of the rotary table. `library`: the compiled kernels, where they are to be used.

    Raises:
        ModelError: a tensor is missing or has the wrong shape.
    """
    if library is not None:
        packed = _Builder(config, weights, storage, device, PackedMaker(storage, library))
        parts = _parts(packed, positions, report)
        return Decoder(config, CompiledStack(parts, library), device=device, dtype=parts.dtype)
    plain = _parts(_Builder(config, weights, storage, device, TorchMaker(storage, device)), positions, report)
    return Decoder(config, TorchStack(plain), device=device, dtype=plain.dtype)


def _parts(builder: _Builder[L], positions: int, report: Callable[[int], None]) -> Parts[L]:
    config, weights, device = builder.config, builder.weights, builder.device
    vocab, hidden = config.vocab_size, config.hidden_size
    table = weights.take(EMBEDDING, vocab, hidden, limit=builder.limit)
    tied = config.tied or HEAD not in weights
    matrix = table if tied else weights.take(HEAD, vocab, hidden, limit=builder.limit)
    if device.type != "cpu":
        # One copy serves the lookup and, when tied, the output projection.
        matrix = matrix.to(device, DTYPES[builder.storage])
        table = matrix if tied else table.to(device, DTYPES[builder.storage])
    head = builder.make.linear(matrix, None)
    layers: list[Layer[L]] = []
    # Packing weights holds no lock of Python's, and one call of it uses one core.
    threads = ThreadPoolExecutor(most_threads() if device.type == "cpu" else 1, "agentree-load")
    try:
        for layer in threads.map(builder.layer, range(config.layers)):
            layers.append(layer)
            report(len(layers))
    finally:
        threads.shutdown(cancel_futures=True)
    norm = builder.norm("model.norm.weight", hidden)
    rotary = RotaryTable(config, positions, device)
    return Parts(config, table, layers, norm, head, rotary, builder.dtype)
