"""Linear layers for the compiled kernels."""

import ctypes

import torch

from agentree.runtime.model.linear import DTYPES, Storage, quantize
from agentree.runtime.native.library import GATES, KINDS, PANEL, Library, Matrix


class Packed:
    """Weights [outputs, inputs] in panels of outputs; activations and sums are float32.

    int8 stores the weights only, with a scale for each output: nothing is rounded but them. With bf16
    activations are rounded too, where the processor multiplies bfloat16; sums stay float32.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, storage: Storage, library: Library
    ) -> None:
        self._library = library
        outputs, inputs = weight.shape
        if inputs % 2:
            raise ValueError(f"the kernels take an even number of inputs, not {inputs}")
        padded = -(-outputs // PANEL) * PANEL
        self._scale: torch.Tensor | None = None
        if storage == "int8":
            weight, scales = quantize(weight)
            self._scale = _pad(scales, padded)
        else:
            weight = weight.to(DTYPES[storage])
        weight = weight.contiguous()
        self._bias = None if bias is None else _pad(bias.float(), padded)
        self._panels = torch.empty(padded * inputs, dtype=weight.dtype)
        library.pack(weight.data_ptr(), outputs, inputs, KINDS[storage], self._panels.data_ptr())
        self.matrix = Matrix(
            self._panels.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            None if self._scale is None else self._scale.data_ptr(),
            inputs,
            outputs,
            KINDS[storage],
        )

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        x = x.contiguous()
        out = torch.empty(x.shape[0], self.matrix.outputs)
        self._library.product(
            ctypes.byref(self.matrix), x.data_ptr(), x.shape[0], out.data_ptr(), torch.get_num_threads()
        )
        return out


def alternate(gate_up: torch.Tensor) -> torch.Tensor:
    """Reorder gates and ups [2 * inner, ...] so that the kernel finds both in one panel."""
    shape = gate_up.shape
    return gate_up.reshape(2, -1, GATES, *shape[1:]).transpose(0, 1).reshape(shape)


def _pad(vector: torch.Tensor, length: int) -> torch.Tensor:
    padded = torch.zeros(length)
    padded[: vector.shape[0]] = vector
    return padded
