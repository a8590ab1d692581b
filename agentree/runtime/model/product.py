"""Float32 matrix products by oneDNN, where they are faster than what torch takes by default.

torch multiplies float32 matrices by MKL, which runs at half speed on processors of other makers; oneDNN
generates code for whatever it finds. Which of the two wins is measured once per process.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch.nn import functional

MARGIN = 1.3
"""oneDNN is taken if MKL needs so many times as long: closer than that, noise would decide."""
ROWS = 16
"""Rows that packed weights are laid out for: this layout is within a few percent of the best for others."""


def raw(overload: Any) -> Callable[..., Any]:
    """The bare function behind an operator.

    torch looks through all arguments for Python subclasses before it calls an operator that may take packed
    weights, at a tenth of the price of a small product.
    """
    return cast("Callable[..., Any]", getattr(overload, "_op", overload))


def times_transposed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply x [M, K] by weight^T, `weight` [N, K] contiguous or packed -> [M, N]."""
    return cast("torch.Tensor", _product()(x, weight, bias, "none", (), ""))


def pack(weight: torch.Tensor) -> torch.Tensor:
    """Lay out float32 `weight` [N, K] for `times_transposed`."""
    return cast("torch.Tensor", torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS))


@cache
def onednn_wins() -> bool:
    """Whether oneDNN's products are right, and clearly faster than the default, on this machine."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(192, 64, generator=generator)
    weight = torch.randn(512, 64, generator=generator)
    bias = torch.randn(512, generator=generator)
    try:
        packed = pack(weight)
        for rows in (1, 3, 192):
            expected = functional.linear(x[:rows], weight, bias)
            for form in (weight, packed):
                if not torch.allclose(times_transposed(x[:rows], form, bias), expected, rtol=1e-4, atol=1e-4):
                    return False
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    slow = _seconds(lambda: functional.linear(x, weight))
    return slow > MARGIN * _seconds(lambda: times_transposed(x, weight))


@cache
def _product() -> Callable[..., Any]:
    return raw(torch.ops.mkldnn._linear_pointwise.default)


def _seconds(call: Callable[[], object]) -> float:
    """The best of some runs on this thread: others on the machine only ever make it slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found: list[float] = []
        for _ in range(12):
            began = time.perf_counter()
            call()
            found.append(time.perf_counter() - began)
        return min(found)
    finally:
        torch.set_num_threads(threads)
