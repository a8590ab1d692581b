"""Reading safetensors folders: one file or shards with an index, checked before anything is used."""

import json
import math
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentree.errors import ModelError, Unsupported
from agentree.runtime.model.config import read_json

if TYPE_CHECKING:
    import torch

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, each of them there and whole.

    Raises:
        ModelError: none there, a shard of the index missing, or a file cut short or damaged: it is named.
    """
    if (folder / SINGLE).exists():
        files = [folder / SINGLE]
    elif (folder / INDEX).exists():
        mapping = read_json(folder / INDEX).get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            raise ModelError(f"{folder / INDEX} has no 'weight_map': the file is damaged")
        names = sorted(set(cast("dict[str, str]", mapping).values()))
        files = [folder / Path(name).name for name in names]
    else:
        found = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "none"
        raise ModelError(
            f"{folder} has no {SINGLE} and no {INDEX}; only safetensors weights are read "
            f"(pickled files found: {found})"
        )
    for path in files:
        check_safetensors(path)
    return files


def check_safetensors(path: Path) -> Mapping[str, Any]:
    """Read the header and compare what it promises with the file's size; returns it, tensor by tensor.

    Raises:
        ModelError: the file is missing, cut short, or its header is no safetensors header.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if length + 8 > size:
                raise ModelError(f"{path} is damaged or cut short: its header does not fit in {size} bytes")
            header = cast("dict[str, Any]", json.loads(file.read(length)))
        header.pop("__metadata__", None)
        promised = 8 + length + max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the folder is no complete model") from None
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise ModelError(f"{path} is damaged: its header is no safetensors header") from error
    if promised != size:
        raise ModelError(
            f"{path} is damaged or cut short: its header promises {promised} bytes, it has {size}"
        )
    return header


class Weights:
    """Tensors of a model folder by name, mapped from disk: nothing is read before it is asked for."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self._folder = folder
        self._stack = ExitStack()
        self._home: dict[str, tuple[Any, Path]] = {}
        for path in weight_files(folder):
            try:
                opened = self._stack.enter_context(cast("Any", safe_open)(str(path), framework="pt"))
            except Exception as error:
                raise ModelError(f"{path} is damaged: {error}") from error
            for name in cast("list[str]", list(opened.keys())):
                self._home[name] = (opened, path)

    def __contains__(self, name: str) -> bool:
        return name in self._home

    def __enter__(self) -> "Weights":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def names(self) -> list[str]:
        """All tensors of the folder."""
        return list(self._home)

    def load(self, name: str) -> "torch.Tensor":
        """The tensor whatever its shape; ModelError if there is none."""
        if name not in self._home:
            raise ModelError(f"{self._folder}: the weights have no tensor {name!r}")
        return cast("torch.Tensor", self._home[name][0].get_tensor(name))

    def take(self, name: str, *shape: int, limit: float = math.inf) -> "torch.Tensor":
        """The tensor, in the dtype it is stored in. `limit`: the largest magnitude that can be used.

        Raises:
            ModelError: it is missing, has another shape than the config asks for, or holds NaN or infinity.
            Unsupported: it holds what is beyond the limit.
        """
        tensor = self.load(name)
        path = self._home[name][1]
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, config.json asks for {shape}"
            )
        if not tensor.is_floating_point():
            raise ModelError(f"{path}: tensor {name!r} is stored as {tensor.dtype}, not as floats")
        lowest, highest = (float(end) for end in tensor.aminmax())
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            raise ModelError(f"{path} is damaged: tensor {name!r} holds values that are no finite numbers")
        if max(-lowest, highest) > limit:
            raise Unsupported(
                f"{path}: tensor {name!r} holds values up to {max(-lowest, highest):g}, and the weights that "
                f"were asked for end at {limit:g}: use weights='fp32'"
            )
        return tensor
