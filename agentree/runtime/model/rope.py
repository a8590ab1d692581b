"""Rotary position embedding over interleaved pairs: one complex product turns all heads of q and k.

Weights on disk pair element i of a head with element i + head_dim / 2. `interleave` reorders the rows of
the q and k projections once, at load, so that partners lie side by side and a head is a row of complex
numbers. Scores are unchanged, since q and k are reordered alike; only the layout inside the pool differs.
"""

import math

import torch

from agentree.runtime.model.config import ModelConfig, Rope


def interleave(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Reorder the rows [heads * head_dim, ...] of each head from halves to neighbouring pairs."""
    shape = weight.shape
    return weight.reshape(-1, 2, head_dim // 2, *shape[1:]).transpose(1, 2).reshape(shape)


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """Radians per position of each pair: float32 [head_dim / 2].

    "llama3" (Llama 3.1, section "RoPE scaling" of its reference code): wavelengths beyond
    original_context / low_freq_factor are stretched by `factor`, those below original_context /
    high_freq_factor are left alone, in between the two are blended linearly.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        # In this order of operations the result is that of transformers to the last bit.
        turns = rope.original_context / (2 * math.pi / frequencies)
        blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        mixed = (1 - blend) * frequencies / rope.factor + blend * frequencies
        mixed = torch.where(blend <= 0, frequencies / rope.factor, mixed)
        return torch.where(blend >= 1, frequencies, mixed)
    return frequencies


class RotaryTable:
    """Unit complex numbers per position and pair: complex64 [length, 1, head_dim / 2]."""

    def __init__(self, config: ModelConfig, length: int, device: torch.device) -> None:
        frequencies = inverse_frequencies(config.rope, config.head_dim)
        angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
        self.table = torch.polar(torch.ones_like(angles), angles).unsqueeze(1).to(device)

    def at(self, positions: torch.Tensor) -> torch.Tensor:
        """Rotations of `positions` int64 [T]: complex64 [T, 1, head_dim / 2]."""
        return self.table.index_select(0, positions)


def rotate_(heads: torch.Tensor, rotation: torch.Tensor) -> None:
    """Turn `heads` [T, heads, head_dim] (interleaved pairs) in place by `rotation` [T, 1, head_dim / 2]."""
    pairs = heads.view(*heads.shape[:2], -1, 2)
    if heads.dtype == torch.float32:
        torch.view_as_complex(pairs).mul_(rotation)
    else:
        turned = torch.view_as_complex(pairs.float()).mul_(rotation)
        pairs.copy_(torch.view_as_real(turned))
