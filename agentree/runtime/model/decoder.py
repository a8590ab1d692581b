"""A loaded model: one forward pass over any batch."""

from typing import Protocol

import torch

from agentree.runtime.model.batch import Batch
from agentree.runtime.model.config import ModelConfig
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.threads import Threads, most_threads


class Stack(Protocol):
    """The layers of a model, on some way to compute them."""

    def forward(self, batch: Batch, kv: KVPool, threads: int) -> torch.Tensor:
        """Logits float32 [L, vocab_size] of `batch.wanted`; K/V of all tokens written to the pool."""
        ...


class Decoder:
    """A loaded model. `forward` is a pure function of the batch and of the pool's slots that its rows name.

    Attributes:
        device, dtype: where it runs and what activations and K/V are made of.
    """

    def __init__(
        self,
        config: ModelConfig,
        stack: Stack,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        threads: Threads | None = None,
    ) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self._stack = stack
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
                return self._stack.forward(batch, kv, 1)
            with self._threads.running(self.work(batch)) as threads:
                return self._stack.forward(batch, kv, threads)
