"""GGUF files written by the test, converted, and compared with what they were made of."""

import json
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from tokenizers import Tokenizer

from agentree.errors import ModelError, Unsupported
from agentree.runtime.model.folder import resolve
from agentree.runtime.model.gguf import convert
from agentree.runtime.model.gguf_tokenizer import PRE_TOKENIZERS, convert_tokenizer
from agentree.runtime.model.load import load_model
from agentree.runtime.model.rope import interleave
from tests.model_reference import Sequences, reference, reference_logits
from tests.tiny_models import SPECIAL_TOKENS, tiny_llama

BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load((folder / "model.safetensors").read_bytes())


def gguf_name(name: str) -> str:
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{BLOCK_NAMES[part]}.{kind}"


def write_gguf(
    folder: Path, path: Path, kind: Kind = Kind.F32, *, extra: dict[str, Any] | None = None
) -> Path:
    """Write a model folder as GGUF, as llama.cpp's own converter would lay it out."""
    config = json.loads((folder / "config.json").read_text())
    spec = json.loads((folder / "tokenizer.json").read_text())
    family = config["model_type"]
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    vocab = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocab)
    writer.add_token_merges([" ".join(pair) for pair in spec["model"]["merges"]])
    writer.add_token_types([3 if token in SPECIAL_TOKENS else 1 for token in vocab])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for key, value in (extra or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in tensors(folder).items():
        part = name.split(".")[-2]
        if family == "llama" and part in heads:
            tensor = interleave(tensor, tensor.shape[0] // heads[part])
        values = tensor.float().numpy()
        if values.ndim == 1 or kind == Kind.F32:
            writer.add_tensor(gguf_name(name), values)
        else:
            writer.add_tensor(gguf_name(name), gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(path: Path, folder: Path) -> Path:
    folder.mkdir()
    convert(path, folder)
    return folder


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_1])
@pytest.mark.parametrize(
    "family",
    [
        {},
        {"tied": True, "head_dim": 32, "heads": 3, "kv_heads": 1},
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
    ],
    ids=["llama", "tied", "qwen2", "qwen3"],
)
def test_tensors_survive(tmp_path: Path, kind: Kind, family: dict[str, Any]) -> None:
    source = tiny_llama(tmp_path, **family)
    folder = converted(write_gguf(source, tmp_path / "model.gguf", kind), tmp_path / "out")
    before, after = tensors(source), tensors(folder)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if tensor.ndim == 1 or kind == Kind.F32:
            assert after[name].dtype == torch.float32
            assert torch.equal(after[name], tensor), name
        elif kind == Kind.BF16:
            assert torch.equal(after[name], tensor.bfloat16()), name
        else:
            values = torch.from_numpy(gguf.dequantize(gguf.quantize(tensor.numpy(), kind), kind))
            assert after[name].dtype == torch.float16
            assert torch.equal(after[name], values.half()), name


def test_converted_model_computes_the_same(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path)
    folder = converted(write_gguf(source, tmp_path / "model.gguf"), tmp_path / "out")
    model = load_model(folder, device="cpu", weights="fp32", kv_tokens=200)
    ids = model.tokenizer.encode("The quick brown fox computes 17*23 once.")
    rows = Sequences(model)
    logits = rows.forward([(rows.new(), ids)])
    for one in (source, folder):
        assert (logits - reference_logits(reference(one), ids)).abs().max() < 1e-4
    assert model.config.end_ids == {2}
    assert model.template == "{{ messages }}"


def test_llama3_divisors_are_recognized(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    source = tiny_llama(tmp_path, rope_theta=500000.0, head_dim=64)
    path = write_gguf(source, tmp_path / "plain.gguf")
    turns = 8192 * 500000.0 ** (-np.arange(0, 64, 2) / 64) / (2 * np.pi)
    blend = np.clip((turns - 1) / 3, 0, 1)
    divisors = (1 / ((1 - blend) / 32 + blend)).astype(np.float32)
    for name, values in {"good": divisors, "bad": divisors + 1}.items():
        reader = gguf.GGUFReader(str(path))
        writer = gguf.GGUFWriter(str(tmp_path / f"{name}.gguf"), "llama")
        for key, field in reader.fields.items():
            if not key.startswith("GGUF.") and key != "general.architecture":
                inner = field.types[1] if len(field.types) > 1 else None
                writer.add_key_value(key, field.contents(), field.types[0], inner)
        writer.add_tensor("rope_freqs.weight", values)
        for tensor in reader.tensors:
            writer.add_tensor(tensor.name, np.asarray(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    config = json.loads((converted(tmp_path / "good.gguf", tmp_path / "out") / "config.json").read_text())
    assert config["rope_scaling"] == scaling
    with pytest.raises(Unsupported, match="rope_freqs"):
        converted(tmp_path / "bad.gguf", tmp_path / "out2")


@pytest.mark.parametrize(
    ("extra", "error", "text"),
    [
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}, Unsupported, "'yarn'"),
        ({"llama.rope.dimension_count": 8}, Unsupported, "partial rotary"),
        (
            {"llama.attention.key_length": 16, "llama.attention.value_length": 8},
            Unsupported,
            "different sizes",
        ),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, extra: dict[str, Any], error: type, text: str
) -> None:
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "model.gguf", extra=extra)
    with pytest.raises(error, match=text):
        converted(path, tmp_path / "out")


def test_linear_scaling_survives(tmp_path: Path) -> None:
    extra = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "model.gguf", extra=extra)
    config = json.loads((converted(path, tmp_path / "out") / "config.json").read_text())
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path, model_type="gemma3")
    with pytest.raises(Unsupported, match="'gemma3' is not supported; supported: llama, qwen2, qwen3"):
        converted(write_gguf(source, tmp_path / "model.gguf"), tmp_path / "out")


@pytest.mark.parametrize("keep", [0, 3, 200, 20_000, -1000])
def test_a_cut_file_is_named(tmp_path: Path, keep: int) -> None:
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.gguf"):
        converted(path, tmp_path / "out")


def test_values_beyond_half_stay_full(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path)
    weights = tensors(source)
    weights["model.layers.0.mlp.up_proj.weight"] *= 1e6
    (source / "model.safetensors").write_bytes(save(weights))
    folder = converted(write_gguf(source, tmp_path / "model.gguf", Kind.Q8_0), tmp_path / "out")
    found = tensors(folder)
    wide = [name for name, tensor in found.items() if tensor.ndim == 2 and tensor.dtype == torch.float32]
    assert wide == ["model.layers.0.mlp.up_proj.weight"]
    load_model(folder, device="cpu", kv_tokens=64)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_named(tmp_path: Path, kind: Kind, value: float) -> None:
    folder = tiny_llama(tmp_path, layers=1)
    path = folder / "model.safetensors"
    weights = load(path.read_bytes())
    weights["model.layers.0.mlp.up_proj.weight"].view(-1)[-1] = value
    path.write_bytes(save(weights))
    with pytest.raises(
        ModelError, match=r"damaged: tensor 'blk\.0\.ffn_up\.weight' holds values that are no"
    ):
        convert(write_gguf(folder, tmp_path / "harmed.gguf", kind), tmp_path)


def test_a_path_is_converted_once_per_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    path = write_gguf(tiny_llama(tmp_path), tmp_path / "model.gguf")
    steps: list[int] = []
    first = resolve(path, progress=lambda step: steps.append(step.done))
    assert steps == list(range(22))
    assert resolve(str(path), progress=lambda step: steps.append(step.done)) == first
    assert len(steps) == 22
    path.unlink()
    write_gguf(tiny_llama(tmp_path, name="other", seed=1), path)
    second = resolve(path)
    assert second.path != first.path
    assert second.name == first.name == "model"
    broken = second.path / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged.*delete"):
        resolve(path)


TEXTS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \n\t'0123456789aZé東🙂")), max_size=60
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer and what became of it by way of GGUF."""
    tmp_path = tmp_path_factory.mktemp("tokenizer")
    source = tiny_llama(tmp_path)
    folder = converted(write_gguf(source, tmp_path / "model.gguf"), tmp_path / "out")
    return Tokenizer.from_file(str(source / "tokenizer.json")), Tokenizer.from_file(
        str(folder / "tokenizer.json")
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.lists(st.one_of(TEXTS, st.sampled_from(SPECIAL_TOKENS)), max_size=5).map("".join))
def test_tokenizer_survives(pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
    ours, theirs = (one.encode(text, add_special_tokens=False).ids for one in pair)
    assert ours == theirs


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_pre_tokenizers_split_like_transformers(text: str) -> None:
    import inspect

    from tokenizers import Regex, pre_tokenizers
    from transformers.convert_slow_tokenizer import TikTokenConverter
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    llama3 = inspect.signature(cast("Any", TikTokenConverter).__init__).parameters["pattern"].default
    for name, pattern in {"qwen2": PRETOKENIZE_REGEX, "llama-bpe": llama3}.items():
        expected = pre_tokenizers.Split(Regex(cast("str", pattern)), behavior="isolated")
        found = PRE_TOKENIZERS[name]()[0]
        assert found.pre_tokenize_str(text) == expected.pre_tokenize_str(text)


def sentencepiece_like() -> tuple[Tokenizer, dict[str, Any]]:
    """A BPE with byte fallback in the manner of Llama 2, and the same as GGUF metadata."""
    from tokenizers import decoders, models, normalizers, trainers

    from tests.tiny_models import CORPUS

    space = "\u2581"
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, limit_alphabet=60)
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    special = ["<unk>", "<s>", "</s>"]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    vocab = {piece: i for i, piece in enumerate([*special, *fallback, *pieces])}
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = trained.normalizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    rank = {left + right: i for i, (left, right) in reversed(list(enumerate(merges)))}
    meta = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(vocab),
        "tokenizer.ggml.scores": [-float(rank.get(piece, 1000)) for piece in vocab],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
    }
    return tokenizer, meta


SENTENCEPIECE = sentencepiece_like()


@settings(max_examples=200, deadline=None)
@given(
    text=st.one_of(
        TEXTS, st.lists(st.sampled_from(["the", "fox", "jumps", "東", "and", "<s>", "tools"])).map(" ".join)
    )
)
def test_sentencepiece_survives(text: str) -> None:
    expected, meta = SENTENCEPIECE
    found = Tokenizer.from_str(convert_tokenizer(meta)[0])
    ids = expected.encode(text, add_special_tokens=False).ids
    assert found.encode(text, add_special_tokens=False).ids == ids
    assert found.decode(ids) == expected.decode(ids)


def test_unknown_tokenizers_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"'t5' is not supported; supported: gpt2, llama"):
        convert_tokenizer({"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["a"]})
    with pytest.raises(Unsupported, match=r"pre-tokenizer 'klingon' is not supported; supported: smollm"):
        convert_tokenizer(
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "klingon", "tokenizer.ggml.tokens": ["a"]}
        )
    with pytest.raises(ModelError, match="merges"):
        convert_tokenizer({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]})
