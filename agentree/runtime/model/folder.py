"""From what the user names to a folder with config.json, safetensors weights and a tokenizer."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agentree.errors import ModelError
from agentree.runtime.model import store
from agentree.runtime.model.catalog import CATALOG
from agentree.runtime.model.fetch import fetch, folder_of
from agentree.runtime.model.progress import Report, ignore

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
_SAMPLE = 1 << 20


@dataclass(frozen=True)
class ModelFolder:
    """A model's files on disk."""

    path: Path
    name: str
    remedy: str
    """What to do where a file of it turns out to be damaged."""


def resolve(ref: str | Path, *, progress: Report = ignore) -> ModelFolder:
    """Find a model by catalogue name, folder, .gguf file or hub id; fetch or convert it if need be.

    Raises:
        ModelError: nothing goes by that name, it can't be fetched, or a file of it is damaged: it is named.
        Unsupported: a GGUF file of a kind that is not supported.
    """
    text = str(ref)
    if isinstance(ref, str) and ref in CATALOG:
        target = folder_of(CATALOG[ref])
        if not target.exists() or not store.is_current(target):
            target = fetch(CATALOG[ref], progress=progress, verify=False).path
        return _whole(ModelFolder(target, ref, f"run 'agentree models fetch {ref}' to repair it"))
    path = Path(ref).expanduser()
    if path.is_dir():
        name = path.resolve().name
        return ModelFolder(path, name, f"get the files of {text!r} again from where they came from")
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"{text!r} is a file: give the folder that holds config.json, or a .gguf file")
        return _from_gguf(path, progress)
    if path.suffix.lower() == ".gguf":
        raise ModelError(f"there is no file {text!r}")
    if isinstance(ref, str) and _HUB_ID.fullmatch(ref):
        return _from_hub(ref)
    raise ModelError(
        f"there is no model {text!r}: the catalogue has {', '.join(map(repr, CATALOG))}; else give a folder "
        "with config.json, safetensors weights and tokenizer.json, a .gguf file, or a hub id 'owner/name'"
    )


def _whole(folder: ModelFolder) -> ModelFolder:
    problems = store.quick_check(folder.path)
    if problems:
        raise ModelError(f"{'; '.join(problems)}; {folder.remedy}")
    return folder


def _from_gguf(path: Path, progress: Report) -> ModelFolder:
    """Converted once per content: the key is the size, the time of the last change and the first bytes."""
    status = path.stat()
    key = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}\n".encode())
    with path.open("rb") as file:
        key.update(file.read(_SAMPLE))
    target = store.models() / f"{path.stem}-{key.hexdigest()[:16]}"

    def fill(folder: Path) -> None:
        from agentree.runtime.model.gguf import convert

        convert(path, folder, progress)

    if not target.exists() or not store.is_current(target):
        with store.locked(target.name):
            if not target.exists() or not store.is_current(target):
                store.build_folder(target, str(path), fill)
    return _whole(ModelFolder(target, path.stem, f"delete {target} and it will be converted again"))


def _from_hub(ref: str) -> ModelFolder:
    import huggingface_hub

    try:
        path: str = cast("Any", huggingface_hub).snapshot_download(ref, allow_patterns=_HUB_FILES)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{ref!r} is no folder and no catalogue name ({', '.join(CATALOG)}), "
            f"and the model hub can't give it: {reason}"
        ) from error
    again = f"huggingface_hub.snapshot_download({ref!r}, force_download=True)"
    return ModelFolder(Path(path), ref, f"download it again: {again}")
