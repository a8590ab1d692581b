"""Model folders small enough to make inside a test: random weights, a trained BPE tokenizer with ChatML."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool|>")

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CORPUS = (
    "The quick brown fox jumps over the lazy dog while the other animals watch from the hill.",
    "system\nYou are a helpful assistant that answers with the help of tools.",
    "user\nWhat is 17*23? assistant\nThe answer is 391.",
    '{"name": "calculator", "arguments": {"expression": "17*23"}}',
    '{"name": "final_answer", "arguments": {"answer": "391"}}',
    '{"title": "A book", "pages": 312, "rating": 4.5, "tags": ["new", "long"], "sold": true, "next": null}',
    "Every transcript lives in one tree over token ids; a shared prefix is computed once and stored once.",
    "A fork continues from the same tokens, and a join names what survives of its branches.",
    "def search(query: str, limit: int = 10) -> list[str]:\n    return [line for line in lines]",
    "Paris is the capital of France; Berlin is the capital of Germany; Madrid is the capital of Spain.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Ça va? Naïve café, 東京, 🙂.",
)


def tiny_tokenizer(*, vocab: int = 512, corpus: Sequence[str] = CORPUS, digits: bool = True) -> Tokenizer:
    """Train a byte-level BPE tokenizer of at most `vocab` ids; the special tokens take the first ids."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        if digits
        else byte_level
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, *, template: str | None = CHATML) -> None:
    """Write tokenizer.json and tokenizer_config.json (with the chat template unless it is None)."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")


def tiny_weights(config: Mapping[str, Any], *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random float32 weights under the names that transformers uses, scaled so that logits spread widely."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kind = config["model_type"]

    def normal(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * scale

    def linear(rows: int, columns: int) -> torch.Tensor:
        return normal(rows, columns, scale=1.0 / math.sqrt(columns))

    def norm(size: int) -> torch.Tensor:
        return 1.0 + normal(size, scale=0.1)

    weights = {
        "model.embed_tokens.weight": normal(vocab, hidden, scale=0.3),
        "model.norm.weight": norm(hidden),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = normal(vocab, hidden, scale=3.0 / math.sqrt(hidden))
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        sizes = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        for name, size in sizes.items():
            weights[f"{prefix}.self_attn.{name}_proj.weight"] = 1.5 * linear(size, hidden)
            if kind == "qwen2" or config.get("attention_bias"):
                weights[f"{prefix}.self_attn.{name}_proj.bias"] = normal(size, scale=0.2)
        weights[f"{prefix}.self_attn.o_proj.weight"] = linear(hidden, heads * head_dim)
        if kind != "qwen2" and config.get("attention_bias"):
            weights[f"{prefix}.self_attn.o_proj.bias"] = normal(hidden, scale=0.2)
        if kind == "qwen3":
            weights[f"{prefix}.self_attn.q_norm.weight"] = norm(head_dim)
            weights[f"{prefix}.self_attn.k_norm.weight"] = norm(head_dim)
        for name, shape in {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
            weights[f"{prefix}.mlp.{name}_proj.weight"] = linear(*shape)
            if config.get("mlp_bias"):
                weights[f"{prefix}.mlp.{name}_proj.bias"] = normal(shape[0], scale=0.2)
        weights[f"{prefix}.input_layernorm.weight"] = norm(hidden)
        weights[f"{prefix}.post_attention_layernorm.weight"] = norm(hidden)
    return weights


def tiny_llama(
    tmp_path: Path,
    *,
    name: str = "tiny",
    vocab: int = 512,
    layers: int = 2,
    hidden: int = 64,
    inner: int = 96,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 2048,
    tied: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    template: str | None = CHATML,
    **overrides: Any,
) -> Path:
    """Write a complete model folder and return it: `load_model(tiny_llama(tmp_path))` works.

    `overrides` go into config.json as they are (`head_dim`, `rope_scaling`, `attention_bias`, `model_type`
    with `architectures`, ...). The same arguments give the same bytes.
    """
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": str(dtype).removeprefix("torch."),
        **overrides,
    }
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    weights = {key: value.to(dtype).contiguous() for key, value in tiny_weights(config, seed=seed).items()}
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    write_tokenizer(folder, tiny_tokenizer(vocab=vocab), template=template)
    return folder
