"""A tokenizer that needs no files: one token for each byte, and the control tokens of ChatML."""

from functools import lru_cache
from pathlib import Path

from agentree.runtime.model.config import ModelConfig, Rope
from agentree.runtime.model.tokenizer import Tokenizer, byte_characters

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT = 1 << 20
"""Positions of a scripted model, in tokens."""


@lru_cache(maxsize=1)
def byte_tokenizer() -> Tokenizer:
    """The tokenizer. A text has as many tokens as UTF-8 bytes."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    first = len(CONTROL)
    letters = {name: i for i, name in enumerate(CONTROL)}
    letters |= {char: first + byte for byte, char in byte_characters().items()}
    backend = Backend(models.BPE(vocab=letters, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in CONTROL])
    return Tokenizer(backend.to_str(), Path("tokenizer.json"), {"eos_token": CONTROL[2]}, byte_config())


def byte_config() -> ModelConfig:
    """Sizes of a model that is never computed: only vocabulary, context and end tokens count."""
    return ModelConfig(
        architecture="scripted",
        vocab_size=len(CONTROL) + 256,
        hidden_size=1,
        intermediate_size=1,
        layers=1,
        heads=1,
        kv_heads=1,
        head_dim=1,
        context=CONTEXT,
        norm_eps=1e-5,
        rope=Rope(),
        tied=True,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        bos_id=None,
        end_ids=frozenset({0, 2}),
    )
