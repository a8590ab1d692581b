"""From a model's name to something that generates."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from agentree.errors import InvalidArgument, ModelError, Unsupported
from agentree.runtime.model.build import build_decoder, choose_storage, compute_dtype
from agentree.runtime.model.config import ModelConfig, read_config
from agentree.runtime.model.decoder import Decoder
from agentree.runtime.model.folder import ModelFolder, resolve
from agentree.runtime.model.kernels import choose_kernels
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.linear import Storage, usable
from agentree.runtime.model.memory import default_slots, refuse_too_many
from agentree.runtime.model.progress import Report, Step, ignore
from agentree.runtime.model.tokenizer import Tokenizer, read_template, read_tokenizer
from agentree.runtime.model.weights import Weights

DeviceChoice = Literal["auto", "cpu", "cuda"]
WeightChoice = Literal["auto", "fp32", "fp16", "bf16", "int8"]


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to run. `weights` and `device` say what "auto" became."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    decoder: Decoder
    kv: KVPool
    template: str | None
    """Chat template (jinja), None where the model has none."""
    weights: str
    """"fp32", "fp16", "bf16" or "int8"."""
    device: str
    kernels: str
    """"compiled" or "torch"."""


def load_model(
    ref: str | Path,
    *,
    device: DeviceChoice = "auto",
    weights: WeightChoice = "auto",
    kv_tokens: int | None = None,
    gpu_memory_fraction: float = 0.9,
    progress: Report = ignore,
) -> LoadedModel:
    """Find the model (fetching or converting it if need be) and load it.

    Args:
        ref: a catalogue name, a model folder, a .gguf file, or a hub id.
        device: "auto" is a GPU if torch sees one.
        weights: how the linear layers are stored; see `choose_storage` for "auto".
        kv_tokens: size of the KV pool in tokens; None: as `default_slots` says.
        gpu_memory_fraction: how much of a GPU's memory weights and pool may take together.
        progress: told of every stage that takes long.

    Raises:
        InvalidArgument: `kv_tokens` is out of range, or more than memory has room for.
        ModelError: the model can't be found or fetched, or one of its files is damaged: it is named.
        Unsupported: the architecture, the device or the way to store weights is not supported.
    """
    if kv_tokens is not None and kv_tokens < 1:
        raise InvalidArgument(f"kv_tokens={kv_tokens} must be at least 1")
    where = _device(device)
    _check_weights(weights, where)
    folder = resolve(ref, progress=progress)

    def report(done: int) -> None:
        progress(Step("load", folder.name, done, config.layers, "layers"))

    def build() -> tuple[Decoder, Storage, str]:
        kernels = choose_kernels(config, progress=progress) if where.type == "cpu" else None
        with Weights(folder.path) as stored:
            storage = choose_storage(stored, weights, where)
            if kernels is None:
                storage = usable(storage, where)
            if kv_tokens is not None:
                refuse_too_many(kv_tokens, config, compute_dtype(storage, where).itemsize, where)
            positions = config.context if kv_tokens is None else min(config.context, kv_tokens)
            decoder = build_decoder(
                config,
                stored,
                storage=storage,
                device=where,
                positions=positions,
                library=kernels,
                report=report,
            )
            return decoder, storage, "torch" if kernels is None else "compiled"

    with _remedied(folder), ThreadPoolExecutor(1, "agentree-load") as beside:
        config = read_config(folder.path)
        # Packing weights leaves Python to others for most of the time. It runs here and not there, so that
        # Ctrl-C ends it, and a compiler too.
        reading = beside.submit(read_tokenizer, folder.path, config)
        try:
            decoder, storage, kernels = build()
        finally:
            # Of two errors the tokenizer's says more: that files are of two models, say.
            tokenizer = reading.result()
        template = read_template(folder.path)
    slots = kv_tokens or default_slots(
        config, decoder.dtype.itemsize, where, gpu_memory_fraction=gpu_memory_fraction
    )
    pool = _pool(config, slots, decoder.dtype, where)
    return LoadedModel(
        folder.name,
        config,
        tokenizer,
        decoder,
        pool,
        template,
        storage,
        where.type,
        kernels,
    )


@contextmanager
def _remedied(folder: ModelFolder) -> Generator[None]:
    """Errors about a file of the folder say what to do about it."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{error}; {folder.remedy}") from error


def _pool(config: ModelConfig, slots: int, dtype: torch.dtype, device: torch.device) -> KVPool:
    try:
        return KVPool(config.layers, slots, config.kv_heads, config.head_dim, dtype, device)
    except (RuntimeError, MemoryError) as error:
        size = slots * config.kv_bytes * dtype.itemsize
        raise ModelError(
            f"{device.type} has no room for the keys and values of {slots} tokens, {size / 1e9:,.1f} GB: set "
            "kv_tokens to fewer"
        ) from error


def _device(device: DeviceChoice) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise Unsupported(f"device {device!r} is not supported; supported: auto, cpu, cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise Unsupported("device 'cuda': torch sees no GPU here; use device='cpu'")
    return torch.device(device)


def _check_weights(weights: WeightChoice, device: torch.device) -> None:
    supported = ("auto", "fp32", "fp16", "bf16", *(["int8"] if device.type == "cpu" else []))
    if weights not in supported:
        raise Unsupported(
            f"weights {weights!r} are not supported on {device.type}; supported: {', '.join(supported)}"
        )
