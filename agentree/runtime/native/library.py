"""The C interface of the compiled kernels. Addresses are numbers: who passes one keeps its memory alive."""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import ClassVar

PANEL = 32
"""Outputs that weights are laid out by; `Matrix.bias` and `Matrix.scale` are padded to a multiple."""
GATES = PANEL // 2
"""Gates and their ups alternate in runs of so many outputs."""
LANES = 16
"""A head's size must be a multiple of this."""
KINDS = {"fp32": 0, "fp16": 1, "bf16": 2, "int8": 3}


class Matrix(Structure):
    """Packed weights [outputs, inputs]."""

    _fields_: ClassVar = [
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("scale", c_void_p),
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("kind", c_int32),
    ]


class Layer(Structure):
    """One block of a decoder."""

    _fields_: ClassVar = [
        ("attention_norm", c_void_p),
        ("qk_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("qkv", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
    ]


class Decoder(Structure):
    """A whole model."""

    _fields_: ClassVar = [
        ("layers", c_int64),
        ("hidden", c_int64),
        ("inner", c_int64),
        ("vocab", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("size", c_int64),
        ("eps", c_float),
        ("layer", POINTER(Layer)),
        ("norm", c_void_p),
        ("head", Matrix),
    ]


class Batch(Structure):
    """One forward pass; see the C++ for shapes."""

    _fields_: ClassVar = [
        ("tokens", c_int64),
        ("jobs", c_int64),
        ("wanted", c_int64),
        ("hidden", c_void_p),
        ("rotation", c_void_p),
        ("writes", c_void_p),
        ("slots", c_void_p),
        ("queries", c_void_p),
        ("job", c_void_p),
        ("want", c_void_p),
        ("pool", c_void_p),
        ("logits", c_void_p),
    ]


class Library:
    """The kernels in a shared library. Calls let go of the interpreter's lock.

    Raises:
        OSError: the file is no library for this machine.
        AttributeError: it lacks a function.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        loaded = ctypes.CDLL(str(path))
        self.pack = loaded.agentree_pack
        self.pack.argtypes = [c_void_p, c_int64, c_int64, c_int32, c_void_p]
        self.pack.restype = None
        self.product = loaded.agentree_product
        self.product.argtypes = [POINTER(Matrix), c_void_p, c_int64, c_void_p, c_int32]
        self.product.restype = None
        self.forward = loaded.agentree_forward
        self.forward.argtypes = [POINTER(Decoder), POINTER(Batch), c_int32]
        self.forward.restype = c_int32
