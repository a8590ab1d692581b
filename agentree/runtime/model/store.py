"""The cache folder: where models live, how a folder gets there whole, and how damage is found.

A finished model folder carries a manifest with the size and sha256 of each of its files. It is made under
another name and renamed into place, manifest last, so what has its final name was whole at that moment.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from filelock import FileLock
from platformdirs import user_cache_path

from agentree.errors import ModelError
from agentree.runtime.model.config import read_json
from agentree.runtime.model.progress import Report, Step, ignore

MANIFEST = "manifest.json"
FORMAT = 1
"""Version of what conversion writes; a folder of another version is converted again."""
_PIECE = 1 << 22


def home() -> Path:
    """The cache folder: AGENTREE_HOME, else the platform's folder for caches."""
    given = os.environ.get("AGENTREE_HOME")
    return Path(given).expanduser() if given else user_cache_path("agentree", appauthor=False)


def models() -> Path:
    """Where converted models live."""
    return home() / "models"


@contextmanager
def locked(name: str) -> Generator[None]:
    """Hold the lock of one model against other processes; it waits as long as they work."""
    folder = home() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(folder / f"{name}.lock"))
        lock.acquire()
    except OSError as error:
        raise ModelError(f"can't write to the cache folder {home()}: {error}; set AGENTREE_HOME") from error
    try:
        yield
    finally:
        lock.release()


def sha256(path: Path, report: Callable[[int], None] | None = None) -> str:
    """Hash a file; `report` gets the bytes done so far."""
    digest = hashlib.sha256()
    done = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                done += len(piece)
                if report is not None:
                    report(done)
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error}") from error
    return digest.hexdigest()


def build_folder(target: Path, source: str, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a model folder, then put it at `target`, replacing what is there. Needs the lock."""
    partial = target.with_name(target.name + ".partial")
    try:
        # The lock is ours, so whatever lies here was left by a process that died.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        fill(partial)
        files = {
            path.name: {"size": path.stat().st_size, "sha256": sha256(path)}
            for path in sorted(partial.iterdir())
        }
        manifest = {"format": FORMAT, "source": source, "files": files}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
    except OSError as error:
        raise ModelError(f"can't write the model to {target}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def is_current(folder: Path) -> bool:
    """Whether `folder` was finished by this version of the conversion; damage is not looked for."""
    try:
        return (folder / MANIFEST).exists() and read_json(folder / MANIFEST).get("format") == FORMAT
    except ModelError:
        return True  # damage, for the checks to tell of


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    files: object = read_json(folder / MANIFEST).get("files")
    listed = cast("dict[str, Any]", files) if isinstance(files, dict) else {}
    entries = [cast("dict[str, Any]", entry) for entry in listed.values() if isinstance(entry, dict)]
    if not listed or [type(entry.get("size")) for entry in entries] != [int] * len(listed):
        raise ModelError(f"{folder / MANIFEST} lists no files with their sizes: it is damaged")
    return cast("dict[str, dict[str, Any]]", listed)


def quick_check(folder: Path) -> list[str]:
    """Compare the sizes of all files with the manifest. Returns what is wrong, file by file."""
    problems: list[str] = []
    try:
        files = _files(folder)
    except ModelError as error:
        return [str(error)]
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif path.stat().st_size != entry.get("size"):
            size = path.stat().st_size
            problems.append(f"{path} is damaged: it has {size} bytes, not {entry.get('size')}")
    return problems


def full_check(folder: Path, progress: Report = ignore) -> list[str]:
    """`quick_check`, then the hash of every file. Returns what is wrong, file by file."""
    problems = quick_check(folder)
    if problems:
        return problems
    files = _files(folder)
    total = sum(int(entry["size"]) for entry in files.values())
    before = 0
    for name, entry in files.items():
        start = before

        def report(done: int, start: int = start) -> None:
            progress(Step("verify", folder.name, start + done, total, "bytes"))

        if sha256(folder / name, report) != entry.get("sha256"):
            problems.append(f"{folder / name} is damaged: its content is not what was written")
        before += int(entry["size"])
    return problems
