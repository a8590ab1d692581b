"""The compiled kernels built in other ways, each against all tests of them: `python -m tests.soak_kernels`.

Narrow vectors on a machine that has wide ones; the compiler's checks of addresses and undefined behaviour.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = ("tests/test_model_decoder.py", "tests/test_model_kernels.py")
OPTIONS = {
    "AVX2": "-mno-avx512f",
    "no bfloat16": "-mno-avx512bf16",
    "sanitized": "-g -fsanitize=address,undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined",
}


def runtime(name: str) -> str:
    """Where g++ keeps a library of its own."""
    done = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(name: str, options: str, folder: Path) -> int:
    """Build and test one way; pytest's exit code."""
    compiler = folder / "compiler"
    # What the tests preload is not for the compiler.
    compiler.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec g++ {options} "$@"\n')
    compiler.chmod(0o755)
    about = {"AGENTREE_CXX": str(compiler), "AGENTREE_HOME": str(folder / "home")}
    chosen = "not torch"
    if "address" in options:
        about["LD_PRELOAD"] = f"{runtime('libasan.so')} {runtime('libstdc++.so')}"
        about["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0"
        # The checks themselves end a process that is refused memory.
        chosen += " and not refuses and not no_room"
    print(f"kernels, {name}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-k", chosen, *TESTS]
    return subprocess.run(command, env={**os.environ, **about}, check=False).returncode


def main() -> int:
    """Run all ways; the number that failed."""
    failed = 0
    for name, options in OPTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            failed += run(name, options, Path(folder)) != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
