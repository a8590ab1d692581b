"""The compiled kernels: built once, checked, not used where wrong, equal to the bit where promised."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from agentree.errors import InvalidArgument
from agentree.runtime.model import decoder, kernels
from agentree.runtime.model.kernels import choose_kernels
from agentree.runtime.model.linear import Storage
from agentree.runtime.model.load import load_model
from agentree.runtime.model.packed import Packed
from agentree.runtime.model.selfcheck import works
from agentree.runtime.native import compiler
from agentree.runtime.native.compiler import BuildFailed, NoCompiler, find_compiler, library
from agentree.runtime.native.library import Library
from tests.model_reference import Sequences
from tests.tiny_models import tiny_llama

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler here")
STORAGES: dict[Storage, float] = {"fp32": 1e-6, "fp16": 1e-6, "bf16": 0.005, "int8": 0.01}
"""Error as a share of the result, for weights that float16 and bfloat16 hold."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(library(tmp_path_factory.mktemp("kernels")))


@needs_compiler
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("rows", [1, 2, 7, 12, 13, 31, 400])
def test_products(compiled: Library, storage: Storage, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(70, 52, generator=generator).bfloat16().float()
    bias, x = torch.randn(70, generator=generator), torch.randn(rows, 52, generator=generator)
    for vector in (bias, None):
        expected = functional.linear(x, weight, vector)
        found = Packed(weight, vector, storage, compiled)(x)
        assert found.shape == expected.shape
        assert (found - expected).norm() < STORAGES[storage] * expected.norm()


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    at=st.integers(0, 39),
    storage=st.sampled_from(sorted(STORAGES)),
    seed=st.integers(0, 9),
)
def test_a_row_is_equal_to_the_bit_whatever_runs_beside_it(
    compiled: Library, rows: int, at: int, storage: Storage, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = Packed(torch.randn(64, 48, generator=generator), None, storage, compiled)
    x = torch.randn(rows, 48, generator=generator)
    at %= rows
    assert torch.equal(layer(x)[at], layer(x[at : at + 1])[0])


@needs_compiler
def test_threads_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path, layers=2)
    found: list[torch.Tensor] = []
    for threads in (1, 2, 5):
        # Also more than this machine has cores, which the variable would not give.
        monkeypatch.setattr(decoder, "most_threads", lambda most=threads: most)
        rows = Sequences(load_model(folder, device="cpu", weights="fp32", kv_tokens=2000))
        trunk = rows.new()
        first = rows.forward([(trunk, list(range(500)))])
        parts = [(rows.new(trunk), [7 + i] * (1 + i)) for i in range(9)]
        found.append(torch.cat((first, rows.forward(parts))))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@needs_compiler
def test_bfloat16_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path, layers=2)
    found: list[torch.Tensor] = []
    for choice in ("compiled", "torch"):
        monkeypatch.setenv("AGENTREE_KERNELS", choice)
        model = load_model(folder, device="cpu", weights="bf16", kv_tokens=100)
        # torch has no such product on a CPU: float32 holds the same numbers.
        assert model.weights == ("bf16" if choice == "compiled" else "fp32")
        rows = Sequences(model)
        found.append(rows.forward([(rows.new(), list(range(40)))]))
    assert (found[0] - found[1]).norm() < 0.02 * found[1].norm()


@needs_compiler
def test_one_build_serves_all(tmp_path: Path) -> None:
    built: list[int] = []
    first = library(tmp_path, lambda: built.append(1))
    assert library(tmp_path, lambda: built.append(2)) == first
    assert set(built) == {1}
    assert works(Library(first))


def test_no_compiler_means_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    monkeypatch.setattr(kernels, "library", no_library)
    assert load_model(folder, device="cpu", kv_tokens=50).kernels == "torch"
    monkeypatch.setenv("AGENTREE_KERNELS", "compiled")
    with pytest.raises(InvalidArgument, match="AGENTREE_KERNELS=compiled: no C\\+\\+ compiler"):
        load_model(folder, device="cpu", kv_tokens=50)


def no_library(folder: Path, starts: object) -> Path:
    raise NoCompiler("no C++ compiler found")


def always(path: Path) -> Callable[[Path, object], Path]:
    return lambda folder, starts: path


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'out of fish' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("AGENTREE_CXX", str(script))
    with pytest.raises(BuildFailed, match="out of fish"):
        library(tmp_path / "made")
    assert not list((tmp_path / "made").glob("*.so"))


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTREE_CXX", "no-such-compiler -O9")
    with pytest.raises(BuildFailed, match="AGENTREE_CXX names 'no-such-compiler'"):
        library(tmp_path)


@needs_compiler
def test_kernels_that_are_wrong_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    here = Path(compiler.__file__).parent
    for name in compiler.SOURCES:
        text = (here / name).read_text()
        # Attention that forgets to scale its scores.
        (sources / name).write_text(text.replace("1.0f / std::sqrt((float)size)", "1.0f"))
    monkeypatch.setattr(compiler, "HERE", sources)
    wrong = library(tmp_path / "made")
    assert not works(Library(wrong))
    monkeypatch.setattr(kernels, "library", always(wrong))
    assert load_model(tiny_llama(tmp_path / "model"), device="cpu", kv_tokens=50).kernels == "torch"
    assert "computes something else than torch" in caplog.text


def test_a_file_that_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_text("nothing")
    monkeypatch.setattr(kernels, "library", always(broken))
    assert load_model(tiny_llama(tmp_path / "model"), device="cpu", kv_tokens=50).kernels == "torch"


def test_the_variable_takes_three_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    monkeypatch.setenv("AGENTREE_KERNELS", "fast")
    with pytest.raises(InvalidArgument, match="AGENTREE_KERNELS='fast' must be one of auto, compiled, torch"):
        load_model(folder, device="cpu", kv_tokens=50)


@needs_compiler
def test_heads_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, heads=4, kv_heads=2, head_dim=8)
    assert load_model(folder, device="cpu", kv_tokens=50).kernels == "torch"
    config = load_model(folder, device="cpu", kv_tokens=50).config
    monkeypatch.setenv("AGENTREE_KERNELS", "compiled")
    with pytest.raises(InvalidArgument, match="heads of 8"):
        choose_kernels(config)


@needs_compiler
def test_a_forked_child_computes_as_well(tmp_path: Path) -> None:
    """It has none of its parent's threads."""
    folder = tiny_llama(tmp_path, layers=2, hidden=128, intermediate=512)
    code = f"""
import os, sys, torch
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from agentree.runtime.model.load import load_model
from tests.model_reference import Sequences
torch.set_num_threads(1)
model = load_model({str(folder)!r}, device="cpu", kv_tokens=300)
rows = Sequences(model)
before = rows.forward([(rows.new(), list(range(200)))])
child = os.fork()
again = Sequences(model)
same = torch.equal(again.forward([(again.new(), list(range(200)))]), before)
if child == 0:
    os._exit(0 if same else 1)
print(same, os.waitpid(child, 0)[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AGENTREE_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.split() == ["True", "0"]


@needs_compiler
def test_a_system_that_refuses_threads(compiled: Library) -> None:
    """The work is done on those that there are."""
    code = f"""
import resource, torch
from pathlib import Path
from agentree.runtime.model.packed import Packed
from agentree.runtime.native.library import Library
torch.set_num_threads(1)
kernels = Library(Path({str(compiled.path)!r}))
x, weight = torch.randn(40, 64), torch.randn(256, 64)
layer = Packed(weight, None, "fp32", kernels)
expected = layer(x)
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (40 << 20), resource.RLIM_INFINITY))
torch.get_num_threads = lambda: 500
print(torch.equal(layer(x), expected))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True"]), done.stderr


@needs_compiler
def test_a_batch_that_memory_has_no_room_for(compiled: Library, tmp_path: Path) -> None:
    """An error, and the next batch runs."""
    folder = tiny_llama(tmp_path, layers=1, inner=32768)
    code = f"""
import resource
from pathlib import Path
from agentree.runtime.model import kernels
from agentree.runtime.model.load import load_model
from tests.model_reference import Sequences
kernels.library = lambda folder, tick: Path({str(compiled.path)!r})
model = load_model({str(folder)!r}, device="cpu", kv_tokens=2100)
rows = Sequences(model)
rows.forward([(rows.new(), [1])], [0])
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), resource.RLIM_INFINITY))
try:
    rows.forward([(rows.new(), [7] * 2000)], [0])
except MemoryError as error:
    print(error)
print(model.kernels, bool(rows.forward([(rows.new(), [1])], [0]).isfinite().all()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AGENTREE_THREADS": "1"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "no memory for a forward pass of 2000 tokens; set max_batch_tokens to fewer",
        "compiled True",
    ], done.stderr
