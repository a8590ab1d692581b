"""The pool of keys and values: one slot is one token in all layers."""

from collections.abc import Sequence

import torch


class KVPool:
    """Storage of `slots` tokens plus one scratch slot for K/V that nobody will read.

    Memory is reserved, not touched: on a CPU pages come in as slots are first written. K and V of a token
    lie side by side, so a forward writes once and gathers once per layer.

    Attributes:
        kv: per layer [slots + 1, 2 * kv_heads, head_dim]; the first kv_heads are K (rotated), then V.
        k, v: views of it, per layer [slots + 1, kv_heads, head_dim].
        scratch: the index of the scratch slot (== slots).
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if slots < 1:
            raise ValueError(f"a pool needs at least one slot, not {slots}")
        shape = (slots + 1, 2 * kv_heads, head_dim)
        self.kv: Sequence[torch.Tensor] = [
            torch.empty(shape, dtype=dtype, device=device) for _ in range(layers)
        ]
        for layer in self.kv:
            layer[slots].zero_()
        self.slots = slots
        self.scratch = slots
        self.k = [layer[:, :kv_heads] for layer in self.kv]
        self.v = [layer[:, kv_heads:] for layer in self.kv]
