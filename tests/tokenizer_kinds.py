"""Small tokenizers of the kinds that models use, trained on the spot."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from agentree.runtime.constraint import Vocabulary
from agentree.runtime.model.tokenizer import Tokenizer as Loaded

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN = LLAMA.replace("{1,3}", "")
KINDS = ("GPT-2", "Llama 3", "Qwen", "SentencePiece", "SentencePiece without prefix")

_CORPUS = [
    '{"name": "search", "arguments": {"query": "the quick brown fox", "limit": 10}}',
    '{"name": "final_answer", "arguments": {"answer": "It is 42, of course.", "tags": []}}',
    '[{"id": 1, "tags": ["red", "blue"], "ok": true}, {"id": 2, "tags": [], "ok": false, "note": null}]',
    '{"city": "Zürich", "date": "2024-05-06T10:00:00Z", "price": -12.50, "名前": "日本語", "emoji": "😀"}',
    "Now is the time for all good men to come to the aid of the party, and so on and on.",
    '"}, {" ": " , "" "]}]} }}} ]]] \n\n  \t "", [" {"" 0.1 100 2000 true false null \\n \\" \\u0001',
]


def _byte_level(pattern: str | None) -> Tokenizer:
    made = Tokenizer(models.BPE(ignore_merges=pattern == LLAMA))
    if pattern == QWEN:
        made.normalizer = normalizers.NFC()
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    parts = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    made.pre_tokenizer = pre_tokenizers.Sequence([*parts, last])
    made.decoder = decoders.ByteLevel()
    return made


def _sentencepiece(prefix: bool) -> Tokenizer:
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if prefix:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


@cache
def tokenizer(kind: str, size: int = 900) -> Loaded:
    """A tokenizer of one of KINDS, as the runtime loads it."""
    special: list[Any] = ["<unk>", "<end>"]
    if kind.startswith("SentencePiece"):
        made = _sentencepiece(kind == "SentencePiece")
        alphabet: list[str] = []
        special += [AddedToken(f"<0x{byte:02X}>", special=False, normalized=False) for byte in range(256)]
    else:
        made = _byte_level({"Llama 3": LLAMA, "Qwen": QWEN}.get(kind))
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    made.train_from_iterator(_CORPUS * 3, trainer)
    spec = json.loads(made.to_str())
    # The trainer knows bytes of SentencePiece only as added tokens; in real files they are plain ones.
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["content"].startswith("<0x")]
    settings = {"eos_token": "<end>"}
    config: Any = SimpleNamespace(vocab_size=made.get_vocab_size(), bos_id=None, end_ids=frozenset[int]())
    return Loaded(json.dumps(spec), Path("tokenizer.json"), settings, config)


def vocabulary(kind: str) -> Vocabulary:
    """What the constraint engine knows of it."""
    return tokenizer(kind).vocabulary()
