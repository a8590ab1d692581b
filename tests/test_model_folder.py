"""Finding a model, and naming what is wrong with one."""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load, save

from agentree.errors import AgentreeError, InvalidArgument, ModelError, Unsupported
from agentree.runtime.model.config import ARCHITECTURES, Rope, read_config
from agentree.runtime.model.folder import resolve
from agentree.runtime.model.load import load_model
from tests.model_reference import Sequences
from tests.tiny_models import tiny_llama


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    return tiny_llama(tmp_path)


def change(path: Path, **values: Any) -> None:
    found = json.loads(path.read_text())
    path.write_text(
        json.dumps({key: value for key, value in {**found, **values}.items() if value != "absent"})
    )


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    weights = load(path.read_bytes())
    change(weights)
    path.write_bytes(save(weights))


def fails(folder: Path, text: str, error: type[AgentreeError] = ModelError) -> None:
    with pytest.raises(error, match=text):
        load_model(folder, device="cpu", kv_tokens=64)


def test_a_folder_is_a_model(folder: Path) -> None:
    found = resolve(folder)
    assert (found.path, found.name) == (folder, "tiny")
    assert resolve(str(folder)) == found


def test_unknown_names_list_the_catalogue(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"no model 'gpt-5'.*'smollm2-135m-instruct'.*folder.*\.gguf"):
        resolve("gpt-5")
    with pytest.raises(ModelError, match=r"no file .*nothing\.gguf"):
        resolve(folder / "nothing.gguf")
    with pytest.raises(ModelError, match=r"config\.json' is a file: give the folder"):
        resolve(folder / "config.json")


def test_hub_id_offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    with pytest.raises(ModelError, match="'nobody-here/no-such-model' is no folder and no catalogue name"):
        resolve("nobody-here/no-such-model")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe"])
def test_damaged_json(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    fails(folder, rf"{name}.*damaged")


@pytest.mark.parametrize("content", [b"{", b"{}", b"[]", b"\xff", b'{"decoder": {"type": "ByteLevel"}}'])
def test_damaged_tokenizer(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    fails(folder, r"tokenizer\.json", AgentreeError)


def test_missing_files(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    fails(folder, r"has no tokenizer\.json")
    (folder / "model.safetensors").rename(folder / "model.bin")
    fails(tiny_without(folder), r"no model\.safetensors.*model\.bin")
    (folder / "config.json").unlink()
    fails(folder, r"config\.json is missing")


def tiny_without(folder: Path) -> Path:
    """Give the folder its tokenizer back."""
    other = tiny_llama(folder.parent, name="other")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((other / name).read_bytes())
    return folder


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "short by one": (lambda data: data[:-1], "header promises"),
    "long by one": (lambda data: data + b"x", "header promises"),
    "cut header": (lambda data: data[:100], "does not fit"),
    "cut length": (lambda data: data[:5], "damaged or cut short"),
    "empty": (lambda _: b"", "damaged or cut short"),
    "bad header": (lambda data: data[:8] + b"x" + data[9:], "no safetensors header"),
    "list": (lambda _: struct.pack("<Q", 2) + b"[]", "no safetensors header"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights(folder: Path, damage: str) -> None:
    harm, text = DAMAGES[damage]
    path = folder / "model.safetensors"
    path.write_bytes(harm(path.read_bytes()))
    fails(folder, rf"model\.safetensors.*{text}")


def test_missing_and_misshapen_tensors(folder: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(folder, lambda weights: weights.update({name: torch.zeros(3, 64)}))
    fails(folder, rf"'{name}' has shape \(3, 64\), config\.json asks for \(96, 64\)")
    rewrite(folder, lambda weights: weights.update({name: torch.zeros(96, 64, dtype=torch.int8)}))
    fails(folder, rf"'{name}' is stored as torch\.int8")
    rewrite(folder, lambda weights: weights.__delitem__(name))
    fails(folder, rf"no tensor '{name}'")


def shard(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load(path.read_bytes())
    names = list(weights)
    homes: dict[str, str] = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        (folder / file).write_bytes(save({name: weights[name] for name in part}))
        homes |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    path.unlink()


def test_shards(folder: Path) -> None:
    whole = load_model(folder, device="cpu", kv_tokens=64)
    shard(folder)
    sharded = load_model(folder, device="cpu", kv_tokens=64)
    ids = list(range(40))
    logits = [rows.forward([(rows.new(), ids)]) for rows in (Sequences(whole), Sequences(sharded))]
    assert torch.equal(*logits)
    second = folder / "model-00002-of-00002.safetensors"
    data = second.read_bytes()
    second.write_bytes(data[:-8])
    fails(folder, r"model-00002-of-00002\.safetensors is damaged")
    second.unlink()
    fails(folder, r"model-00002-of-00002\.safetensors is missing")
    (folder / "model.safetensors.index.json").write_text("{}")
    fails(folder, r"index\.json has no 'weight_map'")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"vocab_size": 0}, "'vocab_size' must be a positive integer, not 0"),
        ({"hidden_size": "64"}, "'hidden_size' must be a positive integer, not '64'"),
        ({"num_hidden_layers": "absent"}, "'num_hidden_layers' must be a positive integer, not None"),
        ({"num_key_value_heads": 3}, "don't fit 3 key-value heads"),
        ({"rms_norm_eps": True}, "'rms_norm_eps' must be a positive number"),
        ({"rope_scaling": [1]}, "rope parameters must be an object"),
        ({"vocab_size": 100}, "files of two models"),
    ],
)
def test_config_that_makes_no_sense(folder: Path, values: dict[str, Any], text: str) -> None:
    change(folder / "config.json", **values)
    fails(folder, text)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, f"'GPT2LMHeadModel'.*supported: {', '.join(ARCHITECTURES)}"),
        ({"architectures": "absent", "model_type": "mamba"}, "'mamba' is not supported"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"only read from \.gguf"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rope scaling 'yarn'.*default, linear, llama3"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
    ],
)
def test_what_is_not_supported_is_named(folder: Path, values: dict[str, Any], text: str) -> None:
    change(folder / "config.json", **values)
    fails(folder, text, Unsupported)


def test_sliding_windows_bound_the_context(folder: Path) -> None:
    path = folder / "config.json"
    change(path, architectures=["MistralForCausalLM"], sliding_window=128)
    assert read_config(folder).context == 128
    change(path, architectures=["Qwen2ForCausalLM"], use_sliding_window=False)
    assert read_config(folder).context == 2048
    change(path, layer_types=["full_attention", "sliding_attention"])
    assert read_config(folder).context == 128


def test_both_spellings_of_rope(folder: Path) -> None:
    path = folder / "config.json"
    rule = {"factor": 8.0, "original_max_position_embeddings": 64}
    change(path, rope_theta=5000.0, rope_scaling={"type": "llama3", **rule})
    old = read_config(folder).rope
    change(path, rope_scaling=None, rope_theta="absent")
    change(path, rope_parameters={"rope_type": "llama3", "rope_theta": 5000.0, **rule})
    assert read_config(folder).rope == old == Rope(5000.0, "llama3", 8.0, 1.0, 4.0, 64)


def test_end_ids_come_from_all_files(folder: Path) -> None:
    change(folder / "config.json", eos_token_id=[7, 8])
    (folder / "generation_config.json").write_text('{"eos_token_id": 9}')
    tokenizer = load_model(folder, device="cpu", kv_tokens=64).tokenizer
    assert tokenizer.end_ids == {0, 2, 7, 8, 9}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
)
def test_one_weight_that_is_no_number(folder: Path, name: str, dtype: torch.dtype, value: float) -> None:
    def harm(weights: dict[str, torch.Tensor]) -> None:
        weights[name] = weights[name].to(dtype)
        weights[name].view(-1)[-1] = value

    rewrite(folder, harm)
    fails(folder, rf"'{name}' holds values that are no finite numbers; get the files of .*tiny' again")


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"])
def test_weights_beyond_half_are_not_squeezed_into_it(folder: Path, name: str) -> None:
    def harm(weights: dict[str, torch.Tensor]) -> None:
        weights[name].view(-1)[3] = -70_000.0

    rewrite(folder, harm)
    assert load_model(folder, device="cpu", kv_tokens=64).weights == "fp32"
    with pytest.raises(
        Unsupported, match=rf"'{name}' holds values up to 70000, .* 65504: use weights='fp32'"
    ):
        load_model(folder, device="cpu", kv_tokens=64, weights="fp16")


def test_a_pool_that_memory_has_no_room_for(folder: Path) -> None:
    with pytest.raises(
        InvalidArgument,
        match=r"kv_tokens=1000000000000 needs 512,000\.0 GB .* 512 bytes a token, .* free: at most \d+ fit",
    ):
        load_model(folder, device="cpu", kv_tokens=10**12)


ODD: Sequence[Any] = (None, 5, -1, 1e30, float("nan"), "x", [], ["x"], [[]], {}, {"type": 5}, 10**30)
"""What a damaged or foreign file may hold in any place."""
PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    "config.json": (
        (), ("architectures",), ("vocab_size",), ("num_attention_heads",), ("rope_theta",), ("eos_token_id",),
        ("rope_scaling",), ("rope_scaling", "type"), ("rope_scaling", "factor"), ("rms_norm_eps",),
    ),
    "generation_config.json": ((), ("eos_token_id",)),
    "tokenizer_config.json": ((), ("chat_template",), ("bos_token",)),
    "tokenizer.json": (
        (), ("model",), ("model", "vocab"), ("model", "merges"), ("added_tokens",), ("decoder",),
        ("decoder", "type"), ("pre_tokenizer",), ("pre_tokenizer", "pretokenizers"), ("normalizer",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_whatever_stands_in_a_file_it_loads_or_is_named(folder: Path, name: str) -> None:
    rule = {"type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}
    change(folder / "config.json", rope_scaling=rule)
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    good = json.loads((folder / name).read_text())
    refused = 0
    for place in PLACES[name]:
        for odd in ODD:
            (folder / name).write_text(json.dumps(put(good, place, odd)))
            try:
                load_model(folder, device="cpu", kv_tokens=64, weights="fp32")
            except (ModelError, Unsupported) as error:
                if isinstance(error, ModelError):  # else it may be a model of another kind
                    assert folder.name in str(error) and "; get the files of" in str(error)
                refused += 1
    assert refused >= 8


def put(value: Any, place: tuple[str, ...], odd: object) -> Any:
    """A copy with another value in a place."""
    return {**value, place[0]: put(value[place[0]], place[1:], odd)} if place else odd


def test_a_template_that_is_no_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    fails(folder, r"chat_template\.jinja can't be read .* damaged; get the files of")


def test_choices_that_can_not_be(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="kv_tokens=0 must be at least 1"):
        load_model(folder, device="cpu", kv_tokens=0)
    with pytest.raises(
        Unsupported, match="weights 'q4' are not supported on cpu; supported: auto, fp32, fp16, bf16, int8"
    ):
        load_model(folder, device="cpu", weights=cast("Any", "q4"))
    if not torch.cuda.is_available():
        with pytest.raises(Unsupported, match="torch sees no GPU here"):
            load_model(folder, device="cuda")
    with pytest.raises(Unsupported, match="device 'tpu'"):
        load_model(folder, device="tpu")  # pyright: ignore[reportArgumentType]


def test_the_pool_by_default(folder: Path) -> None:
    model = load_model(folder, device="cpu")
    assert 256 <= model.kv.slots <= 32768
    assert model.kv.scratch == model.kv.slots
    assert (model.device, model.name) == ("cpu", "tiny")
    assert [tuple(layer.shape) for layer in model.kv.k] == [(model.kv.slots + 1, 2, 16)] * 2
