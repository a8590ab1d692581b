"""The layers of a decoder on the compiled kernels: one call for a whole forward pass."""

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from agentree.runtime.model.attention import check_rows
from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.packed import Packed
from agentree.runtime.model.sharing import Slots, share
from agentree.runtime.model.stack import Layer, Parts
from agentree.runtime.native import library as native

WORTH = 96
"""K/V positions that a stretch shared by several rows must save: fewer cost less than merging."""
NO_RUN = 1 << 62
"""Slots need not lie side by side here: a lone row is never cut for it."""

JOB = np.dtype(
    [
        ("context", np.int64),
        ("length", np.int64),
        ("tokens", np.int64),
        ("count", np.int64),
        ("causal", np.int64),
    ]
)


class Jobs:
    """What is attended in every layer of a batch: shared stretches of context, then each row's own."""

    def __init__(self, rows: Sequence[Row]) -> None:
        contexts = [cast("Slots", row.kv.numpy()) for row in rows]
        pasts = [
            context[: len(context) - (row.stop - row.start)]
            for row, context in zip(rows, contexts, strict=True)
        ]
        segments, starts = share(pasts, worth=WORTH, run=NO_RUN) if len(rows) > 1 else ([], [0])
        tokens = [np.arange(row.start, row.stop) for row in rows]
        slots = [segment.slots for segment in segments]
        queries = [np.concatenate([tokens[row] for row in segment.rows]) for segment in segments]
        own = [context[start:] for context, start in zip(contexts, starts, strict=True)]
        self.slots: NDArray[np.int64] = np.concatenate([*slots, *own])
        self.queries: NDArray[np.int64] = np.concatenate([*queries, *tokens])
        self.table = np.zeros(len(segments) + len(rows), JOB)
        self.table["length"] = [len(part) for part in (*slots, *own)]
        self.table["count"] = [len(part) for part in (*queries, *tokens)]
        for place, size in (("context", "length"), ("tokens", "count")):
            self.table[place][1:] = np.cumsum(self.table[size])[:-1]
        self.table["causal"][len(segments) :] = 1


class CompiledStack:
    """The forward pass in `library`; weights, activations and pool in this machine's memory, float32."""

    def __init__(self, parts: Parts[Packed], library: native.Library) -> None:
        self._parts = parts
        self._library = library
        config = parts.config
        layers = (native.Layer * config.layers)(*(_layer(layer) for layer in parts.layers))
        self._decoder = native.Decoder(
            config.layers,
            config.hidden_size,
            config.intermediate_size,
            config.vocab_size,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.norm_eps,
            layers,
            parts.norm.data_ptr(),
            parts.head.matrix,
        )

    def forward(self, batch: Batch, kv: KVPool, threads: int) -> torch.Tensor:
        """See `Stack`."""
        tokens, wanted = batch.ids.shape[0], batch.wanted.shape[0]
        check_rows(batch.rows, tokens)
        jobs = Jobs(batch.rows)
        hidden = self._parts.embedding.index_select(0, batch.ids).float()
        rotation = self._parts.rotary.at(batch.positions)
        pool = (ctypes.c_void_p * len(kv.kv))(*(layer.data_ptr() for layer in kv.kv))
        logits = torch.empty(wanted, self._parts.config.vocab_size)
        call = native.Batch(
            tokens,
            len(jobs.table),
            wanted,
            hidden.data_ptr(),
            rotation.data_ptr(),
            batch.slots.data_ptr(),
            jobs.slots.ctypes.data,
            jobs.queries.ctypes.data,
            jobs.table.ctypes.data,
            batch.wanted.data_ptr(),
            ctypes.addressof(pool),
            logits.data_ptr(),
        )
        if self._library.forward(ctypes.byref(self._decoder), ctypes.byref(call), threads):
            raise MemoryError(
                f"no memory for a forward pass of {tokens} tokens; set max_batch_tokens to fewer"
            )
        return logits


def _layer(layer: Layer[Packed]) -> native.Layer:
    return native.Layer(
        layer.attention_norm.data_ptr(),
        None if layer.qk_norm is None else layer.qk_norm.data_ptr(),
        layer.mlp_norm.data_ptr(),
        layer.qkv.matrix,
        layer.output.matrix,
        layer.gate_up.matrix,
        layer.down.matrix,
    )
