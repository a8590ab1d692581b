"""Builds the kernels for the machine at hand, once, into a cache folder.

A library is named by everything that went into it: sources, compiler, options and the processor's features.
So one folder may serve several machines, and nothing is ever stale. Its name also holds a digest of its
content: to open half a library would end the process.
"""

import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout

HERE = Path(__file__).parent
SOURCES = ("library.cpp", "attention.h", "product.h", "team.h", "simd.h")
OPTIONS = ("-std=c++20", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread", "-w")
VARIABLE = "AGENTREE_CXX"
TIMEOUT = 300
"""Seconds that a compiler may take."""
TICK = 0.3
"""Seconds between two calls of `tick`."""
SCRATCH = "making-"


class BuildFailed(Exception):
    """There is no library for this machine: says why."""


class NoCompiler(BuildFailed):
    """Nobody asked for a compiler, and there is none."""


def find_compiler() -> Sequence[str] | None:
    """The command of a C++ compiler: AGENTREE_CXX, CXX, one on the path, or zig's from the extra `native`.

    Raises:
        BuildFailed: AGENTREE_CXX names a program that is not there, or can't be read as a command.
    """
    for variable in (VARIABLE, "CXX"):
        text = os.environ.get(variable, "")
        try:
            command = shlex.split(text)
        except ValueError as error:
            if variable != VARIABLE:
                continue
            raise BuildFailed(f"{VARIABLE}={text!r} is no command: {error}") from error
        if command and shutil.which(command[0]):
            return command
        if command and variable == VARIABLE:
            raise BuildFailed(f"{VARIABLE} names {command[0]!r}, and there is no such program")
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    return None


def library(folder: Path, tick: Callable[[], None] = lambda: None) -> Path:
    """The library for this machine in `folder`, built if it isn't there.

    `tick` is called before that and a few times a second until it is done; what it raises ends the compiler.

    Raises:
        NoCompiler: none was found.
        BuildFailed: it failed, or others may write to `folder`.
        OSError: the folder can't be written to.
    """
    compiler = find_compiler()
    if compiler is None:
        raise NoCompiler("no C++ compiler found: install one, or `pip install 'agentree[native]'`")
    native = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    command = [*compiler, *OPTIONS, native]
    key = _key(command)
    found = _find(folder, key)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "build.lock", tick):
        return _find(folder, key) or _build(command, folder, key, tick)


def _find(folder: Path, key: str) -> Path | None:
    """A library that is whole, and that nobody but this user and root can have written."""
    try:
        about = folder.stat()
    except FileNotFoundError:
        return None
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        raise BuildFailed(f"anybody may put a library into {str(folder)!r}: `chmod o-w` it")
    for path in sorted(folder.glob(f"{key}-*.so")):
        about = path.stat()
        ours = about.st_uid in (0, os.geteuid()) and not about.st_mode & stat.S_IWOTH
        if ours and path.stem.endswith(f"-{_digest(path)}"):
            return path
    return None


@contextmanager
def _locked(path: Path, tick: Callable[[], None]) -> Generator[None]:
    lock = FileLock(path)
    while not lock.is_locked:
        try:
            lock.acquire(timeout=TICK)
        except Timeout:
            tick()
        except NotImplementedError as error:
            raise BuildFailed(f"{str(path)!r} can't be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _build(command: Sequence[str], folder: Path, key: str, tick: Callable[[], None]) -> Path:
    """Needs the lock."""
    # What lies here was left by a process that was killed.
    for left in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
        made = Path(scratch) / "kernels.so"
        _compile([*command, str(HERE / SOURCES[0]), "-o", str(made)], Path(scratch) / "errors", tick)
        if not made.exists():
            raise BuildFailed(f"{shlex.join(command)} made no library")
        target = folder / f"{key}-{os.geteuid()}-{_digest(made)}.so"
        made.replace(target)
    for damaged in folder.glob(f"{key}-{os.geteuid()}-*.so"):
        if damaged != target:
            damaged.unlink(missing_ok=True)
    return target


def _compile(command: Sequence[str], errors: Path, tick: Callable[[], None]) -> None:
    tick()
    ends = time.monotonic() + TIMEOUT
    with errors.open("wb") as file:
        try:
            # A session of its own: a compiler is several processes, and they end together.
            running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildFailed(f"{shlex.join(command)}: {error}") from error
        try:
            while (code := _ended(running)) is None:
                if time.monotonic() > ends:
                    raise BuildFailed(f"{shlex.join(command)} took more than {TIMEOUT} seconds")
                tick()
        finally:
            if running.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait()
    if code:
        said = errors.read_text(encoding="utf-8", errors="replace").strip()
        raise BuildFailed(f"{shlex.join(command)} failed: {said[-500:]}")


def _ended(running: subprocess.Popen[bytes]) -> int | None:
    try:
        return running.wait(TICK)
    except subprocess.TimeoutExpired:
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:24]


def _key(command: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    compiler = shutil.which(command[0]) or command[0]
    about = Path(compiler).stat()
    digest.update(repr((command, about.st_size, about.st_mtime_ns, platform.machine(), _features())).encode())
    return digest.hexdigest()[:24]


def _features() -> str:
    """What the processor can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
