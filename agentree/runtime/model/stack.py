"""The layers of a decoder on torch: Llama's forward pass, with the switches that the other families need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch.nn import functional

from agentree.runtime.model.attention import AttentionPlan
from agentree.runtime.model.batch import Batch
from agentree.runtime.model.config import ModelConfig
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.linear import Linear
from agentree.runtime.model.rope import RotaryTable, rotate_

L_co = TypeVar("L_co", bound=Linear, covariant=True)


@dataclass(frozen=True, eq=False)
class Layer(Generic[L_co]):
    """Weights of one block. q, k and v are one projection, gate and up another."""

    attention_norm: torch.Tensor
    qkv: L_co
    qk_norm: torch.Tensor | None
    """[heads + kv_heads, head_dim]: the norm's weight for each head of q, then of k."""
    output: L_co
    mlp_norm: torch.Tensor
    gate_up: L_co
    down: L_co


@dataclass(frozen=True, eq=False)
class Parts(Generic[L_co]):
    """All that a decoder is made of."""

    config: ModelConfig
    embedding: torch.Tensor
    layers: Sequence[Layer[L_co]]
    norm: torch.Tensor
    head: L_co
    rotary: RotaryTable
    dtype: torch.dtype
    """What activations and K/V are made of."""


class TorchStack:
    """The forward pass in torch's operations, on any device."""

    def __init__(self, parts: Parts[Linear]) -> None:
        self._parts = parts
        self._device = parts.norm.device

    def forward(self, batch: Batch, kv: KVPool, threads: int) -> torch.Tensor:
        """See `Stack`. torch's own setting decides the threads."""
        parts, config, device = self._parts, self._parts.config, self._device
        tokens = batch.ids.shape[0]
        heads, turned = config.heads, config.heads + config.kv_heads
        plan = AttentionPlan(batch.rows, tokens, heads // config.kv_heads, parts.dtype, device)
        slots, wanted = batch.slots.to(device), batch.wanted.to(device)
        rotation = parts.rotary.at(batch.positions.to(device))
        hidden = parts.embedding.index_select(0, batch.ids.to(device)).to(parts.dtype)
        last = len(parts.layers) - 1
        for number, layer in enumerate(parts.layers):
            pool = kv.kv[number]
            qkv = layer.qkv(self._normalize(hidden, layer.attention_norm)).view(tokens, -1, config.head_dim)
            if layer.qk_norm is not None:
                qk = qkv[:, :turned]
                qk.copy_(functional.rms_norm(qk, (config.head_dim,), None, config.norm_eps) * layer.qk_norm)
            rotate_(qkv[:, :turned], rotation)
            pool.index_copy_(0, slots, qkv[:, heads:])
            if number == last and not wanted.shape[0]:
                break
            attended = plan.attend(qkv[:, :heads], pool)
            if number == last:
                # Past the last attention a token influences no other one.
                attended, hidden = attended.index_select(0, wanted), hidden.index_select(0, wanted)
            hidden += layer.output(attended)
            inner = layer.gate_up(self._normalize(hidden, layer.mlp_norm))
            gate, up = inner.chunk(2, dim=1)
            hidden += layer.down(functional.silu(gate).mul_(up))
        if not wanted.shape[0]:
            return torch.empty((0, config.vocab_size), dtype=torch.float32, device=device)
        return parts.head(self._normalize(hidden, parts.norm)).float()

    def _normalize(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        config = self._parts.config
        return functional.rms_norm(hidden, (config.hidden_size,), weight, config.norm_eps)
