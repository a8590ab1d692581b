"""Cutting long tool results to a number of tokens, with a notice in the middle."""

from collections.abc import Callable


def clip_tokens(count: Callable[[str], int], text: str, limit: int) -> str:
    """The text itself if it has at most `limit` tokens, else its head and tail and how much is missing.

    `count` gives the tokens of a text. The result has at most `limit` tokens, or is the notice alone.
    """
    if len(text.encode("utf-8", "replace")) <= limit:
        return text  # no tokenizer makes more tokens than bytes
    total = count(text)
    if total <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        kept = (low + high + 1) // 2
        if count(_cut(text, kept, total)) <= limit:
            low = kept
        else:
            high = kept - 1
    return _cut(text, low, total)


def _cut(text: str, kept: int, total: int) -> str:
    tail = kept // 4
    head = text[: kept - tail]
    return f"{head}\n[… cut: the whole has {total:,} tokens …]\n{text[len(text) - tail :]}"
