"""Ways to store weights: each against a plain float32 product, and no row minds its neighbours."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from agentree.runtime.model import linear
from agentree.runtime.model.linear import PackedFloat, PackedHalf, PackedInt8, fits_half, works
from agentree.runtime.model.load import load_model
from tests.model_reference import Sequences
from tests.tiny_models import tiny_llama

FORMS = {PackedFloat: 1e-6, PackedHalf: 1e-6, PackedInt8: 0.02}
"""Mean error as a share of the mean result."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 2, 31, 200])
def test_each_form_computes_the_product(
    form: type[PackedFloat] | type[PackedHalf] | type[PackedInt8], rows: int
) -> None:
    torch.manual_seed(rows)
    weight, bias, x = torch.randn(96, 64).half().float(), torch.randn(96), torch.randn(rows, 64)
    for vector in (bias, None):
        expected = functional.linear(x, weight, vector)
        found = form(weight, vector)(x)
        assert found.shape == expected.shape
        assert (found - expected).norm() < FORMS[form] * expected.norm()


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e4]), min_size=1, max_size=9),
    seed=st.integers(0, 99),
)
def test_int8_rows_are_equal_to_the_bit_whatever_runs_beside_them(sizes: list[float], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = PackedInt8(torch.randn(40, 32, generator=generator), torch.randn(40, generator=generator))
    x = torch.randn(len(sizes), 32, generator=generator) * torch.tensor(sizes)[:, None]
    together = layer(x)
    assert together.isfinite().all()
    for i in range(len(sizes)):
        assert torch.equal(layer(x[i : i + 1])[0], together[i])


def test_a_weight_of_zeros_gives_zeros() -> None:
    weight = torch.ones(4, 16)
    weight[2] = 0.0
    found = PackedInt8(weight, None)(torch.ones(1, 16))
    assert found[0, 2] == 0.0
    assert found[0, 1].item() == pytest.approx(16.0, rel=0.02)


def test_a_kernel_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(self: PackedInt8, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 48)

    assert works(PackedInt8)
    works.cache_clear()
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    monkeypatch.setattr(PackedInt8, "__call__", wrong)
    try:
        assert not works(PackedInt8)
        assert load_model(tiny_llama(tmp_path), device="cpu", weights="int8", kv_tokens=64).weights == "fp32"
    finally:
        works.cache_clear()


def test_int8_model(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, layers=2)
    ids = list(range(40, 90))
    found: list[torch.Tensor] = []
    for weights in ("fp32", "int8"):
        model = load_model(folder, device="cpu", weights=weights, kv_tokens=100)
        assert model.weights == weights
        rows = Sequences(model)
        found.append(rows.forward([(rows.new(), ids)]))
    assert (found[0] - found[1]).norm() < 0.1 * found[0].norm()


def test_float32_without_onednn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path, layers=2)
    ids = list(range(40, 90))
    found: list[torch.Tensor] = []
    for wins in (True, False):
        monkeypatch.setattr(linear, "onednn_wins", lambda wins=wins: wins)
        rows = Sequences(load_model(folder, device="cpu", weights="fp32", kv_tokens=100))
        found.append(rows.forward([(rows.new(), ids)]))
    assert (found[0] - found[1]).abs().max().item() < 1e-4


def test_what_fits_in_half() -> None:
    wide = torch.tensor([1.0, 3.0 + 2.0**-7, 2.0**-14, -(2.0**-24)])
    assert fits_half(wide)
    # Tiny bfloat16 numbers lose bits that no sum would keep.
    assert fits_half(torch.tensor([2.0**-14 * (1 + 2.0**-7), 2.0**-30], dtype=torch.bfloat16))
    assert not fits_half(torch.tensor([1.0 + 2.0**-12]))
    assert not fits_half(torch.tensor([1e6]))
    assert not fits_half(torch.tensor([float("nan")]))
