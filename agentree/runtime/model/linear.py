"""Linear layers: one class per way of storing the weights, all called with float rows."""

from functools import cache
from typing import Any, Literal, Protocol, cast

import torch
from torch.nn import functional

from agentree.runtime.model.product import onednn_wins, pack, raw, times_transposed

Storage = Literal["fp32", "fp16", "bf16"]
DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Linear(Protocol):
    """y = x W^T + b for rows x [T, inputs] -> [T, outputs]."""

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor: ...


class Dense:
    """Weights as a plain tensor; x comes in the same dtype."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        return functional.linear(x, self.weight, self.bias)


class PackedHalf:
    """Weights packed as float16 for the CPU's float16-weight kernel: float32 in, math and out.

    Exact up to the order of summation when the weights are representable in float16.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        ops = cast("Any", torch.ops.quantized)
        self._packed: object = ops.linear_prepack_fp16(weight.float(), None if bias is None else bias.float())
        self._run = raw(ops.linear_dynamic_fp16.default)

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        return cast("torch.Tensor", self._run(x, self._packed))


class PackedFloat:
    """Float32 weights in oneDNN's own layout."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._packed = pack(weight.float())
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        return times_transposed(x, self._packed, self._bias)


@cache
def packed_half_works() -> bool:
    """Whether this machine's torch has the float16-weight kernel and it computes what it should."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 40, generator=generator).half().float()
    bias = torch.randn(48, generator=generator)
    try:
        layer = PackedHalf(weight, bias)
        for rows in (1, 3, 17):
            x = torch.randn(rows, 40, generator=generator)
            if not torch.allclose(layer(x), functional.linear(x, weight, bias), rtol=1e-4, atol=1e-4):
                return False
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True


def fits_half(tensor: torch.Tensor) -> bool:
    """Whether every value of `tensor` is a float16 number, so that storing it as one loses nothing."""
    if tensor.dtype == torch.float16:
        return True
    return bool(torch.equal(tensor.half().to(tensor.dtype), tensor))


def make_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, storage: Storage, device: torch.device
) -> Linear:
    """Put `weight` [outputs, inputs] where and how it will be used."""
    if device.type == "cpu" and storage == "fp16":
        return PackedHalf(weight, bias)
    if device.type == "cpu" and storage == "fp32" and onednn_wins():
        return PackedFloat(weight, bias)
    dtype = DTYPES[storage]
    return Dense(weight.to(device, dtype), None if bias is None else bias.to(device, dtype))
