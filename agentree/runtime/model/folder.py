"""From what the user names to a folder with config.json, safetensors weights and a tokenizer."""

from dataclasses import dataclass
from pathlib import Path

from agentree.errors import ModelError
from agentree.runtime.model.progress import Report, ignore


@dataclass(frozen=True)
class ModelFolder:
    """A model's files on disk."""

    path: Path
    name: str


def resolve(ref: str | Path, *, progress: Report = ignore) -> ModelFolder:
    """Find a model."""
    path = Path(ref).expanduser()
    if path.is_dir():
        return ModelFolder(path, path.name)
    raise ModelError(f"there is no model {str(ref)!r}")
