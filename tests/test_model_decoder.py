"""The decoder against transformers, on tiny random weights in float32: max |delta logit| < 1e-4."""

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.config import read_config
from agentree.runtime.model.load import LoadedModel, load_model
from agentree.runtime.model.rope import inverse_frequencies, rotate_
from agentree.runtime.native.compiler import find_compiler
from tests.model_reference import Sequences, reference, reference_logits
from tests.tiny_models import tiny_llama

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied": {"tied": True},
    "biased": {"attention_bias": True, "mlp_bias": True},
    "head_dim": {"head_dim": 32, "heads": 3, "kv_heads": 1, "hidden": 48},
    "llama3": {"rope_scaling": LLAMA3, "rope_theta": 5000.0},
    "llama3 of transformers 5": {"rope_parameters": {**LLAMA3, "rope_theta": 5000.0}},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tied": True},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
}
TOLERANCE = 1e-4
KERNELS = ("torch", "compiled")


def random_ids(count: int, seed: int = 0, vocab: int = 512) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return cast("list[int]", torch.randint(vocab, (count,), generator=generator).tolist())


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert found.shape[0] == 0 or (found - expected).abs().max().item() < TOLERANCE


@pytest.fixture(scope="module", params=KERNELS)
def kernels(request: pytest.FixtureRequest) -> Generator[str]:
    """What computes the models of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTREE_KERNELS", "auto" if request.param == "compiled" else "torch")
        yield request.param


def loaded(folder: Path, kernels: str, slots: int) -> LoadedModel:
    model = load_model(folder, device="cpu", weights="fp32", kv_tokens=slots)
    if kernels == "compiled" and find_compiler() is None:
        pytest.skip("no C++ compiler here")
    assert model.kernels == kernels
    return model


@pytest.fixture(scope="module", params=FAMILIES)
def family(
    request: pytest.FixtureRequest, kernels: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoadedModel, Any]:
    folder = tiny_llama(tmp_path_factory.mktemp("family"), **FAMILIES[request.param])
    return loaded(folder, kernels, 2000), reference(folder)


@pytest.fixture(scope="module")
def llama(kernels: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Any]:
    folder = tiny_llama(tmp_path_factory.mktemp("llama"), layers=3)
    return loaded(folder, kernels, 4000), reference(folder)


@pytest.mark.parametrize("contiguous", [True, False])
def test_prefill_chunks_and_decode(family: tuple[LoadedModel, Any], contiguous: bool) -> None:
    model, expected = family
    ids = random_ids(333)
    logits = reference_logits(expected, ids)
    whole = Sequences(model, contiguous=contiguous)
    close(whole.forward([(whole.new(), ids)]), logits)
    chunks = Sequences(model, seed=1, contiguous=contiguous)
    row = chunks.new()
    at = 0
    for size in (1, 5, 16, 17, 128, 129, 1, 2, 8):
        close(chunks.forward([(row, ids[at : at + size])]), logits[at : at + size])
        at += size
    for i in range(at, len(ids)):
        close(chunks.forward([(row, ids[i : i + 1])]), logits[i : i + 1])


def test_transformers_own_folder(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    source = tiny_llama(tmp_path)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    saved = LlamaForCausalLM(config).eval()
    for limit in ("10GB", "100KB"):
        folder = tmp_path / limit
        saved.save_pretrained(str(folder), max_shard_size=limit)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes((source / name).read_bytes())
        assert len(list(folder.glob("*.safetensors"))) == 1 or limit == "100KB"
        model = load_model(folder, device="cpu", weights="fp32", kv_tokens=300)
        rows = Sequences(model)
        ids = random_ids(90)
        close(rows.forward([(rows.new(), ids)]), reference_logits(saved, ids))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mixture(llama: tuple[LoadedModel, Any], data: st.DataObject) -> None:
    """Forks that share slots, extended in mixed batches of 1 to 60 tokens a row."""
    model, expected = llama
    rows = Sequences(model, seed=data.draw(st.integers(0, 9)))
    rows.new()
    rows.forward([(0, random_ids(data.draw(st.integers(1, 150))))], wanted=[])
    seed = 1
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):
            rows.new(data.draw(st.integers(0, len(rows.ids) - 1)))
        who = data.draw(st.lists(st.integers(0, len(rows.ids) - 1), unique=True, min_size=1))
        sizes = [data.draw(st.sampled_from([1, 1, 2, 3, 7, 16, 17, 60])) for _ in who]
        parts = [(which, random_ids(size, seed + which)) for which, size in zip(who, sizes, strict=True)]
        total = sum(sizes)
        wanted = data.draw(st.lists(st.integers(0, total - 1), max_size=5))
        before = [len(rows.ids[which]) for which in who]
        logits = rows.forward(parts, wanted)
        every = torch.cat(
            [
                reference_logits(expected, rows.ids[which])[start:]
                for which, start in zip(who, before, strict=True)
            ]
        )
        close(logits, every[torch.tensor(wanted, dtype=torch.int64)])
        seed += 100


def test_many_rows_of_all_lengths(llama: tuple[LoadedModel, Any]) -> None:
    model, expected = llama
    rows = Sequences(model)
    lengths = [1, 2, 3, 30, 40, 300, 310, 320, 700]
    for length in lengths:
        rows.forward([(rows.new(), random_ids(length, length))], wanted=[])
    logits = rows.forward([(i, [7]) for i in range(len(lengths))])
    for i, found in enumerate(logits):
        close(found, reference_logits(expected, rows.ids[i])[-1])


def test_a_row_reads_what_its_batch_writes(llama: tuple[LoadedModel, Any]) -> None:
    """A trunk computed by one row and two branches on top of it, all in one forward."""
    model, expected = llama
    trunk, left, right = random_ids(40, 1), random_ids(3, 2), random_ids(20, 3)
    ids = torch.tensor(trunk + left + right)
    slots = torch.randperm(1000)[: len(ids)]
    at_left, at_right = slots[40:43], slots[43:]
    rows = [
        Row(43, 63, torch.cat([slots[:40], at_right])),
        Row(0, 40, slots[:40]),
        Row(40, 43, torch.cat([slots[:40], at_left])),
    ]
    positions = torch.cat([torch.arange(40), torch.arange(40, 43), torch.arange(40, 60)])
    logits = model.decoder.forward(Batch(ids, positions, slots, rows, torch.arange(63)), model.kv)
    close(logits[:43], reference_logits(expected, trunk + left))
    close(logits[43:], reference_logits(expected, trunk + right)[40:])


def test_scratch_recomputes_a_cached_token(llama: tuple[LoadedModel, Any]) -> None:
    """Full hit: the last token runs again for its logits, two rows at once, and the tree's K/V stay."""
    model, expected = llama
    rows = Sequences(model)
    ids = random_ids(50)
    logits = rows.forward([(rows.new(), ids)])
    context = torch.tensor(rows.slots[0])
    before = [layer[context].clone() for layer in model.kv.kv]
    last = torch.tensor([ids[-1]] * 2)
    scratch = torch.tensor([model.kv.scratch] * 2)
    again = model.decoder.forward(
        Batch(
            last, torch.tensor([49, 49]), scratch, [Row(0, 1, context), Row(1, 2, context)], torch.arange(2)
        ),
        model.kv,
    )
    close(again, logits[-1:].expand(2, -1))
    close(again, reference_logits(expected, ids)[-1:].expand(2, -1))
    assert all(torch.equal(a, layer[context]) for a, layer in zip(before, model.kv.kv, strict=True))


def test_garbage_in_unused_slots_does_not_matter(llama: tuple[LoadedModel, Any]) -> None:
    model, expected = llama
    for layer in model.kv.kv:
        layer.fill_(float("nan"))
    rows = Sequences(model)
    lengths = (3, 20, 100)
    for length in lengths:
        rows.forward([(rows.new(), random_ids(length, length))], wanted=[])
    logits = rows.forward([(0, random_ids(5)), (1, [4]), (2, random_ids(4, 8))], wanted=[4, 5, 9])
    for i in range(3):
        close(logits[i], reference_logits(expected, rows.ids[i])[-1])


def test_rows_must_fit_the_batch(llama: tuple[LoadedModel, Any]) -> None:
    model, _ = llama
    one = torch.tensor([1])
    with pytest.raises(ValueError, match="rows hold 0 queries, the batch 1"):
        model.decoder.forward(Batch(one, one, one, [], one), model.kv)
    with pytest.raises(ValueError, match="2 queries over a context of 1"):
        model.decoder.forward(Batch(one, one, one, [Row(0, 2, one)], one), model.kv)


@pytest.mark.parametrize(
    "scaling", [None, {"rope_type": "linear", "factor": 4.0}, LLAMA3], ids=["default", "linear", "llama3"]
)
def test_frequencies_are_those_of_transformers(tmp_path: Path, scaling: dict[str, Any] | None) -> None:
    folder = tiny_llama(tmp_path, rope_scaling=scaling, rope_theta=5000.0, head_dim=64)
    config = read_config(folder)
    theirs = reference(folder).model.rotary_emb.inv_freq
    assert torch.equal(inverse_frequencies(config.rope, config.head_dim), theirs)


def test_rotation_in_half_precision() -> None:
    """As on a GPU: the product is made in float32, only its result is rounded."""
    heads = torch.randn(5, 3, 8).bfloat16()
    rotation = torch.polar(torch.ones(5, 1, 4), torch.randn(5, 1, 4))
    full, half = heads.float(), heads.clone()
    rotate_(full, rotation)
    rotate_(half, rotation)
    assert torch.equal(full.bfloat16(), half)


def test_half_weights_equal_full_ones(tmp_path: Path) -> None:
    """Stored as float16: "auto" packs them, and only the order of summation differs from fp32."""
    folder = tiny_llama(tmp_path, dtype=torch.float16, tied=True)
    packed = load_model(folder, device="cpu", kv_tokens=500)
    full = load_model(folder, device="cpu", weights="fp32", kv_tokens=500)
    assert (packed.weights, full.weights) == ("fp16", "fp32")
    ids = random_ids(100)
    expected = reference_logits(reference(folder), ids)
    for model in (packed, full):
        rows = Sequences(model)
        close(rows.forward([(rows.new(), ids)]), expected)


def test_auto_keeps_what_half_would_lose(tmp_path: Path) -> None:
    assert load_model(tiny_llama(tmp_path), device="cpu", kv_tokens=64).weights == "fp32"
