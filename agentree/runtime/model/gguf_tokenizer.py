"""GGUF metadata -> tokenizer.json and tokenizer_config.json."""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from agentree.errors import ModelError, Unsupported

_KEY = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER, _UNUSED = 2, 3, 4, 5
_ADDED = (_UNKNOWN, _CONTROL, _USER, _UNUSED)
_SPACE = "\u2581"
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(digits: str) -> Any:
    """Word splitting of the Llama 3 family; `digits` matches a run of digits that stays one piece."""
    pattern = "|".join((_ENDINGS, _WORD, digits, _MARKS, _BLANKS))
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


PRE_TOKENIZERS: Mapping[str, Callable[[], Any]] = {
    "smollm": _smollm,
    "gpt-2": _gpt2,
    "llama-bpe": lambda: _split(r"\p{N}{1,3}"),
    "llama3": lambda: _split(r"\p{N}{1,3}"),
    "qwen2": lambda: _split(r"\p{N}"),
}


def _byte_level(meta: Mapping[str, Any], vocab: dict[str, int]) -> Tokenizer:
    pre = str(meta.get(_KEY + "pre", "gpt-2"))
    if pre not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise Unsupported(f"the GGUF pre-tokenizer {pre!r} is not supported; supported: {known}")
    merges: list[tuple[str, str]] = []
    for merge in cast("list[str]", meta.get(_KEY + "merges") or []):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    if not merges:
        raise ModelError(f"the GGUF file has no {_KEY}merges: its tokenizer is incomplete")
    # Llama 3 takes a word that is itself a token as that token, whatever its merges say.
    whole_words = pre in ("llama-bpe", "llama3")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _scored_merges(vocab: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece keeps a score per piece, not the merges: a better piece is merged earlier."""
    found: list[tuple[float, int, int, str, str]] = []
    for piece, token in vocab.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[token], vocab[left], vocab[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]


def _sentencepiece(meta: Mapping[str, Any], vocab: dict[str, int]) -> Tokenizer:
    scores = cast("list[float] | None", meta.get(_KEY + "scores"))
    if scores is None or len(scores) != len(vocab):
        raise ModelError(f"the GGUF file has no {_KEY}scores for all tokens: its tokenizer is incomplete")
    types = cast("list[int]", meta.get(_KEY + "token_type") or [1] * len(vocab))
    normal = {piece: i for piece, i in vocab.items() if types[i] in (1, _USER)}
    unknown = [piece for piece, i in vocab.items() if types[i] == _UNKNOWN]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_scored_merges(normal, scores),
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    to_space = normalizers.Replace(" ", _SPACE)
    prefix = bool(meta.get(_KEY + "add_space_prefix", True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(_SPACE), to_space] if prefix else [to_space]
    )
    steps: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def convert_tokenizer(meta: Mapping[str, Any]) -> tuple[str, str]:
    """Build both files' text from the key-value pairs of a GGUF file.

    Raises:
        Unsupported: a kind of tokenizer or pre-tokenizer that is not known here.
        ModelError: the metadata is incomplete.
    """
    tokens = cast("list[str]", meta.get(_KEY + "tokens") or [])
    vocab = {token: i for i, token in enumerate(tokens)}
    if not tokens or len(vocab) != len(tokens):
        raise ModelError(f"the GGUF file's {_KEY}tokens are missing or not distinct")
    kind = meta.get(_KEY + "model")
    if kind == "gpt2":
        tokenizer = _byte_level(meta, vocab)
    elif kind == "llama":
        tokenizer = _sentencepiece(meta, vocab)
    else:
        raise Unsupported(f"the GGUF tokenizer {kind!r} is not supported; supported: gpt2, llama")
    types = cast("list[int]", meta.get(_KEY + "token_type") or [1] * len(tokens))
    for run in _runs([i for i, kind in enumerate(types) if kind in _ADDED], types):
        added = [AddedToken(tokens[i], special=types[i] != _USER, normalized=False) for i in run]
        if types[run[0]] == _USER:
            tokenizer.add_tokens(added)
        else:
            tokenizer.add_special_tokens(added)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }
    for name in ("bos", "eos", "unk", "pad"):
        key = {"unk": "unknown", "pad": "padding"}.get(name, name)
        token = meta.get(f"{_KEY}{key}_token_id")
        if isinstance(token, int) and 0 <= token < len(tokens):
            settings[f"{name}_token"] = tokens[token]
    template = meta.get("tokenizer.chat_template")
    if isinstance(template, str):
        settings["chat_template"] = template
    return tokenizer.to_str(), json.dumps(settings, indent=2, ensure_ascii=False)


def _runs(ids: list[int], types: list[int]) -> list[list[int]]:
    """Cut ascending ids where a user-defined token meets one of the others."""
    runs = [[ids[0]]] if ids else []
    for before, after in pairwise(ids):
        if (types[before] == _USER) == (types[after] == _USER):
            runs[-1].append(after)
        else:
            runs.append([after])
    return runs
