"""How many tokens the KV pool holds when nobody says so."""

import os
from pathlib import Path

import torch

from agentree.errors import InvalidArgument, ModelError
from agentree.runtime.model.config import ModelConfig

DEFAULT_SLOTS = 32768
LEAST_SLOTS = 256
CPU_FRACTION = 0.5
"""Share of the memory that is free now which the pool may take on a CPU."""


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


def _cached(path: str) -> int:
    """Bytes of a control group that hold files, and are given up where memory is needed."""
    try:
        pairs = [line.split() for line in Path(path).read_text(encoding="ascii").splitlines()]
        return sum(int(size) for name, size in pairs if name in ("active_file", "inactive_file"))
    except (OSError, ValueError, UnicodeDecodeError):
        return 0


def available_memory() -> int | None:
    """Bytes that this process can still get, inside its control group too; None where that can't be told."""
    found: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.extend(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, UnicodeDecodeError):
        names = os.sysconf_names
        if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        found.append(max(limit - used, 0) + min(used, _cached("/sys/fs/cgroup/memory.stat")))
    return min(found, default=None)


def refuse_too_many(slots: int, config: ModelConfig, element_size: int, device: torch.device) -> None:
    """Raise InvalidArgument for a pool that memory has no room for, with the numbers. Sizes as above."""
    per_token = config.kv_bytes * element_size
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if free is not None and slots * per_token > free:
        raise InvalidArgument(
            f"kv_tokens={slots} needs {slots * per_token / 1e9:,.1f} GB for keys and values, {per_token} "
            f"bytes a token, and {free / 1e9:,.1f} GB are free: at most {free // per_token} fit"
        )


def default_slots(
    config: ModelConfig, element_size: int, device: torch.device, *, gpu_memory_fraction: float
) -> int:
    """Slots for the pool, in tokens. `element_size`: bytes of one number of K or V.

    On a CPU 32768 or as many as half of the free memory holds; on a GPU what `gpu_memory_fraction` of its
    memory leaves beside the weights.

    Raises:
        ModelError: not even a few hundred tokens fit.
    """
    per_token = config.kv_bytes * element_size
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        slots = int(free - (1.0 - gpu_memory_fraction) * total) // per_token
    else:
        memory = available_memory()
        slots = (
            DEFAULT_SLOTS if memory is None else min(DEFAULT_SLOTS, int(memory * CPU_FRACTION) // per_token)
        )
    if slots < LEAST_SLOTS:
        raise ModelError(
            f"too little memory for keys and values: {max(slots, 0)} tokens of {per_token} bytes fit; "
            "free some, or set kv_tokens"
        )
    return slots
