"""Linear layers: one class per way of storing the weights, all called with float rows."""

import warnings
from functools import cache
from typing import Any, Literal, Protocol, cast

import torch
from torch.nn import functional

from agentree.runtime.model.product import onednn_wins, pack, raw, times_transposed

Storage = Literal["fp32", "fp16", "bf16", "int8"]
DTYPES: dict[str, torch.dtype] = {
    "int8": torch.float32,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}

LOST = 2.0**-25
"""Half the distance between the smallest numbers of float16."""
TINY = float(torch.finfo(torch.float32).tiny)


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


class PackedInt8:
    """Weights as int8 with a scale per output, activations as int8 with a scale per row.

    torch's kernel quantizes a whole batch by its extremes, so that a row's result would depend on its
    neighbours. Here every row is divided by its own largest element, and one more row that holds 1 and -1
    makes the extremes the same for every batch: results are equal to the bit whatever runs beside a row.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        tensor = _quantized(*quantize(weight))
        ops = cast("Any", torch.ops.quantized)
        self._packed: object = ops.linear_prepack(tensor, None)
        self._run = raw(ops.linear_dynamic.default)
        self._bias = None if bias is None else bias.float()
        self._extremes = torch.zeros(1, weight.shape[1])
        self._extremes[0, 0], self._extremes[0, -1] = 1.0, -1.0
        self._narrow = int8_saturates()

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        largest = x.abs().amax(1, keepdim=True).clamp_min_(TINY)
        rows = torch.cat((x / largest, self._extremes))
        y = cast("torch.Tensor", self._run(rows, self._packed, self._narrow))[:-1].mul_(largest)
        return y if self._bias is None else y.add_(self._bias)


def quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [outputs, inputs] as int8, and the float32 scale of each output [outputs]."""
    weight = weight.float()
    scales = weight.abs().amax(1).clamp_min_(TINY).div_(127)
    return (weight / scales[:, None]).round_().to(torch.int8), scales


def _quantized(whole: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The only form in which the kernel takes weights, int8 [outputs, inputs] and a scale for each output."""
    make: Any = torch.__dict__["_make_per_channel_quantized_tensor"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        return cast("torch.Tensor", make(whole, scales.double(), zeros, 0))


@cache
def int8_saturates() -> bool:
    """Whether the kernel adds pairs of products in 16 bits, as AVX2 does: activations get a bit less then."""
    tensor = _quantized(torch.full((32, 64), 127, dtype=torch.int8), torch.ones(32))
    ops = cast("Any", torch.ops.quantized)
    x = torch.ones(2, 64)
    x[1, 0] = -1.0
    y = cast("torch.Tensor", ops.linear_dynamic(x, ops.linear_prepack(tensor, None), False))
    return bool((y[0] < 0.95 * 64 * 127).any())


@cache
def works(kind: type[PackedHalf] | type[PackedInt8]) -> bool:
    """Whether this machine's torch has the kernel and it computes what it should."""
    tolerance = 1e-4 if kind is PackedHalf else 0.3
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 40, generator=generator).half().float()
    bias = torch.randn(48, generator=generator)
    try:
        layer = kind(weight, bias)
        for rows in (1, 3, 17):
            x = torch.randn(rows, 40, generator=generator)
            expected = functional.linear(x, weight, bias)
            if not torch.allclose(layer(x), expected, rtol=tolerance, atol=tolerance):
                return False
    except (RuntimeError, AttributeError, NotImplementedError, KeyError):
        return False
    return True


def usable(storage: Storage, device: torch.device) -> Storage:
    """`storage`, or "fp32" where torch's kernel that it needs on a CPU is missing or wrong."""
    if device.type != "cpu":
        return storage
    if storage == "bf16":
        return "fp32"
    if (storage == "fp16" and not works(PackedHalf)) or (storage == "int8" and not works(PackedInt8)):
        return "fp32"
    return storage


def fits_half(tensor: torch.Tensor) -> bool:
    """Whether storing `tensor` as float16 changes no value by more than LOST.

    A float16 number changes by nothing, a bfloat16 one only where it is tiny, and by less than what adding
    up a few hundred products of it in float32 loses.
    """
    if tensor.dtype == torch.float16:
        return True
    return bool(((tensor.half().float() - tensor.float()).abs() <= LOST).all())


def make_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, storage: Storage, device: torch.device
) -> Linear:
    """Put `weight` [outputs, inputs] where and how it will be used."""
    if device.type == "cpu" and storage in ("fp16", "int8"):
        return (PackedHalf if storage == "fp16" else PackedInt8)(weight, bias)
    if device.type == "cpu" and storage == "fp32" and onednn_wins():
        return PackedFloat(weight, bias)
    dtype = DTYPES[storage]
    return Dense(weight.to(device, dtype), None if bias is None else bias.to(device, dtype))
