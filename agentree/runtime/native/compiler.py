"""Builds the kernels for the machine at hand, once, into a cache folder.

A library is named by everything that went into it: sources, compiler, options and the processor's features.
So one folder may serve several machines, and nothing is ever stale.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent
SOURCES = ("library.cpp", "attention.h", "product.h", "team.h", "simd.h")
OPTIONS = ("-std=c++20", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread", "-w")
VARIABLE = "AGENTREE_CXX"
TIMEOUT = 300
"""Seconds that a compiler may take."""


class BuildFailed(Exception):
    """There is no library for this machine: says why."""


class NoCompiler(BuildFailed):
    """Nobody asked for a compiler, and there is none."""


def find_compiler() -> Sequence[str] | None:
    """The command of a C++ compiler: AGENTREE_CXX, CXX, one on the path, or zig's from the extra `native`.

    Raises:
        BuildFailed: AGENTREE_CXX names a program that is not there.
    """
    for variable in (VARIABLE, "CXX"):
        command = shlex.split(os.environ.get(variable, ""))
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


def library(folder: Path, starts: Callable[[], None] = lambda: None) -> Path:
    """The library for this machine in `folder`, built if it isn't there; `starts` is called before that.

    Raises:
        NoCompiler: none was found.
        BuildFailed: it failed.
        OSError: the folder can't be written to.
    """
    compiler = find_compiler()
    if compiler is None:
        raise NoCompiler("no C++ compiler found: install one, or `pip install 'agentree[native]'`")
    native = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    command = [*compiler, *OPTIONS, native]
    target = folder / f"{_key(command)}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "build.lock"):
        if not target.exists():
            starts()
            _compile(command, target)
    return target


def _compile(command: Sequence[str], target: Path) -> None:
    source = HERE / SOURCES[0]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        try:
            done = subprocess.run(
                [*command, str(source), "-o", str(made)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(f"{shlex.join(command)}: {error}") from error
        if done.returncode:
            raise BuildFailed(f"{shlex.join(command)} failed: {done.stderr.strip()[-500:]}")
        made.replace(target)


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
