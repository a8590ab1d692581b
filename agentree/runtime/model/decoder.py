"""The decoder: Llama's forward pass, with the switches that the other families need (see `config`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from agentree.runtime.model.attention import AttentionPlan
from agentree.runtime.model.batch import Batch
from agentree.runtime.model.config import ModelConfig
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.linear import Linear
from agentree.runtime.model.rope import RotaryTable, rotate_
from agentree.runtime.model.threads import Threads, most_threads


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights of one block. q, k and v are one projection, gate and up another."""

    attention_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    """[heads + kv_heads, head_dim]: the norm's weight for each head of q, then of k."""
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """A loaded model. `forward` is a pure function of the batch and of the pool's slots that its rows name.

    Attributes:
        device, dtype: where it runs and what activations and K/V are made of.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: torch.Tensor,
        layers: Sequence[Layer],
        norm: torch.Tensor,
        head: Linear,
        rotary: RotaryTable,
        dtype: torch.dtype = torch.float32,
        threads: Threads | None = None,
    ) -> None:
        self.config = config
        self.device = norm.device
        self.dtype = dtype
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._rotary = rotary
        self._threads = threads or Threads(most_threads())
        self._per_token = config.hidden_size * (
            3 * config.intermediate_size + 2 * (config.heads + config.kv_heads) * config.head_dim
        )
        self._per_pair = 2 * config.heads * config.head_dim

    def work(self, batch: Batch) -> int:
        """Multiplications per layer; those of attention, which run at half the speed, count twice."""
        read = sum((row.stop - row.start) * row.kv.shape[0] for row in batch.rows)
        return batch.ids.shape[0] * self._per_token + 2 * read * self._per_pair

    def forward(self, batch: Batch, kv: KVPool) -> torch.Tensor:
        """Compute the whole batch; write its K/V; return logits float32 [L, vocab_size] of `batch.wanted`.

        In each layer K/V of all tokens are written before any row attends, so a row may read slots that
        other rows of the same batch write.

        Raises:
            ValueError: the rows don't fit the batch.
        """
        with torch.inference_mode():
            if self.device.type != "cpu":
                return self._forward(batch, kv)
            with self._threads.running(self.work(batch)):
                return self._forward(batch, kv)

    def _forward(self, batch: Batch, kv: KVPool) -> torch.Tensor:
        config = self.config
        device = self.device
        tokens = batch.ids.shape[0]
        heads, turned = config.heads, config.heads + config.kv_heads
        plan = AttentionPlan(batch.rows, tokens, heads // config.kv_heads, self.dtype, device)
        slots, wanted = batch.slots.to(device), batch.wanted.to(device)
        rotation = self._rotary.at(batch.positions.to(device))
        hidden = self._embedding.index_select(0, batch.ids.to(device)).to(self.dtype)
        last = len(self._layers) - 1
        for number, layer in enumerate(self._layers):
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
        return self._head(self._normalize(hidden, self._norm)).float()

    def _normalize(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(hidden, (self.config.hidden_size,), weight, self.config.norm_eps)
