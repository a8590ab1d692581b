"""Text to token ids and back, over a `tokenizers` file: byte-level BPE, or SentencePiece with bytes."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentree.errors import ModelError, Unsupported
from agentree.runtime.model.config import ModelConfig, read_json

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

    from agentree.runtime.constraint import Vocabulary

END_TOKENS = frozenset(
    ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>")
)
"""Control tokens that end a turn in common templates, whether or not the config names them."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"


def byte_characters() -> dict[int, str]:
    """The character by which byte-level BPE writes each byte.

    Printable Latin-1 stands for itself; the other 68 bytes, in order, take the characters from U+0100 on.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in table]
    table.update({byte: chr(0x100 + i) for i, byte in enumerate(others)})
    return table


def _parts(part: object) -> Iterable[dict[str, Any]]:
    """A normalizer, pre-tokenizer or decoder of tokenizer.json and, of a sequence, its members."""
    if isinstance(part, dict):
        node = cast("dict[str, Any]", part)
        yield node
        for key in ("normalizers", "pretokenizers", "decoders"):
            for inner in node.get(key, ()):
                yield from _parts(inner)


def _without_dummy_prefix(spec: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer for text that continues other text: no space is put in front of it."""
    spec = dict(spec)
    for node in _parts(spec.get("pre_tokenizer")):
        if node.get("type") == "Metaspace":
            node["prepend_scheme"] = "never"
        if node.get("type") == "ByteLevel":
            node["add_prefix_space"] = False
    normalizer = spec.get("normalizer")
    if isinstance(normalizer, dict):
        node = cast("dict[str, Any]", normalizer)
        if node.get("type") == "Prepend":
            spec["normalizer"] = None
        elif node.get("type") == "Sequence":
            node["normalizers"] = [inner for inner in node["normalizers"] if inner.get("type") != "Prepend"]
    return spec


def _adds_prefix(spec: Mapping[str, Any]) -> bool:
    return any(
        node.get("type") == "Prepend"
        or (node.get("type") == "Metaspace" and node.get("prepend_scheme", "always") != "never")
        or (node.get("type") == "ByteLevel" and node.get("add_prefix_space", True))
        for key in ("normalizer", "pre_tokenizer")
        for node in _parts(spec.get(key))
    )


def _pattern(added: Iterable["AddedToken"]) -> re.Pattern[str] | None:
    """Finds added tokens in text as the tokenizer does, the longest of those that begin first.

    None where one of them takes more than its own letters, or where there are none.
    """
    tokens = list(added)
    if not tokens or any(t.lstrip or t.rstrip or t.single_word or t.normalized for t in tokens):
        return None
    return re.compile("|".join(re.escape(t.content) for t in sorted(tokens, key=lambda t: -len(t.content))))


def _backend(text: str, path: Path) -> "Backend":
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str(text)
    except Exception as error:
        raise ModelError(f"{path} is no tokenizer file ({error}): it is damaged or too new") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


class Tokenizer:
    """One model's tokenizer. Token ids are those of the model's logits: 0 <= id < `size`.

    Attributes:
        size: width of the logits; ids that the tokenizer does not know have no bytes.
        bos, eos: the strings of these control tokens, "" where the model has none.
        end_ids: control tokens that end a turn.
        fingerprint: changes when the file or the size changes.
    """

    def __init__(self, text: str, path: Path, settings: Mapping[str, Any], config: ModelConfig) -> None:
        self._path = path
        try:
            parsed: object = json.loads(text)
        except ValueError as error:
            raise ModelError(f"{path} can't be read ({error}): the file is damaged") from error
        if not isinstance(parsed, dict):
            raise ModelError(f"{path} holds no JSON object: the file is damaged")
        spec = cast("dict[str, Any]", parsed)
        self._byte_level = any(node.get("type") == "ByteLevel" for node in _parts(spec.get("decoder")))
        sentencepiece = {"Metaspace", "ByteFallback"} & {n.get("type") for n in _parts(spec.get("decoder"))}
        if not self._byte_level and not sentencepiece:
            raise Unsupported(f"{path}: only byte-level BPE and SentencePiece tokenizers are supported")
        self._text = text
        # Text of users and models may spell control tokens; here they are text like any other.
        middle = json.dumps(_without_dummy_prefix(spec)) if _adds_prefix(spec) else text
        self._plain = _backend(middle, path)
        self._plain.encode_special_tokens = True
        self.size = config.vocab_size
        self._unknown = self._plain.token_to_id(spec["model"].get("unk_token") or "")
        self._added = self._plain.get_added_tokens_decoder()
        self._splits = _pattern(self._added.values()) if middle is text else None
        self._ids = self._plain.get_vocab(with_added_tokens=False)
        highest = max(self._ids.values(), default=-1)
        if highest >= self.size:
            raise ModelError(
                f"{path} knows the id {highest}, but the model has only {self.size}: files of two models"
            )
        self.fingerprint = hashlib.sha256(f"{self.size}\n{text}".encode()).hexdigest()
        self._control = {
            token.content: i for i, token in self._added.items() if token.special and i < self.size
        }
        self.bos = self._name(settings.get("bos_token"), config.bos_id)
        self.eos = self._name(settings.get("eos_token"), min(config.end_ids, default=None))
        named = {self._control[name] for name in (END_TOKENS | {self.eos}) if name in self._control}
        self.end_ids = frozenset(named | {i for i in config.end_ids if i < self.size})

    def _name(self, given: object, fallback: int | None) -> str:
        if isinstance(given, dict):
            given = cast("dict[str, object]", given).get("content")
        if isinstance(given, str):
            return given
        token = self._added.get(fallback) if fallback is not None else None
        return token.content if token is not None else ""

    @cached_property
    def _markup(self) -> "Backend":
        return _backend(self._text, self._path)

    def _marked(self, text: str) -> list[int]:
        """Ids of text with control tokens, between which the tokenizer reads each piece by itself."""
        if self._splits is None:
            return self._markup.encode(text, add_special_tokens=False).ids
        ids: list[int] = []
        end = 0
        for found in self._splits.finditer(text):
            ids += self._plain.encode(text[end : found.start()], add_special_tokens=False).ids
            ids.append(cast("int", self._plain.token_to_id(found[0])))
            end = found.end()
        return ids + self._plain.encode(text[end:], add_special_tokens=False).ids

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of `text`, with nothing put around them.

        Without `special`, strings that look like control tokens are plain text and the text is taken to
        continue other text; with it, control tokens are recognized and a text's start is treated as the
        tokenizer's own file says. Unpaired surrogates become U+FFFD.
        """
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _broken(text) else text
        ids = self._marked(text) if special else self._plain.encode(text, add_special_tokens=False).ids
        if special and ids and max(ids) >= self.size:
            raise ModelError(
                f"{self._path}: a control token of the text has no row in the model ({max(ids)})"
            )
        return ids

    @cached_property
    def _bytes(self) -> list[bytes | None]:
        table: list[bytes | None] = [None] * self.size
        if self._byte_level:
            letters = byte_characters()
            known = frozenset(letters.values())
            joined = "".join(self._ids)
            data = joined.translate({ord(char): byte for byte, char in letters.items()})
            data = data.encode("latin-1", "replace")
            strange = not known.issuperset(joined)
            end = 0
            for token, i in self._ids.items():
                begin, end = end, end + len(token)
                whole = not strange or known.issuperset(token)
                table[i] = data[begin:end] if whole else token.encode("utf-8")
        else:
            for token, i in self._ids.items():
                byte = _BYTE_TOKEN.fullmatch(token)
                table[i] = bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode("utf-8")
        for i, added in self._added.items():
            if i < self.size:
                # Added tokens that are not special are text that the model's author gave an id of its own.
                table[i] = None if added.special else added.content.encode("utf-8")
        if self._unknown is not None and self._unknown < self.size:
            table[self._unknown] = None
        return table

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes that an id stands for; None for control tokens and for ids that nothing encodes to."""
        return self._bytes[token]

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD. Control tokens show only with `special`."""
        pieces: list[bytes] = []
        for token in ids:
            piece = self._bytes[token]
            if piece is None and special and token in self._added:
                piece = self._added[token].content.encode("utf-8")
            pieces.append(piece or b"")
        return b"".join(pieces).decode("utf-8", "replace")

    @cached_property
    def _single(self) -> dict[int, int]:
        return {
            piece[0]: i for i, piece in reversed(list(enumerate(self._bytes))) if piece and len(piece) == 1
        }

    def encode_bytes(self, data: bytes) -> list[int]:
        """Canonical ids of bytes that continue other text; bytes that are no UTF-8 go one by one.

        Raises:
            ValueError: the vocabulary has no token for such a byte.
        """
        ids: list[int] = []
        while data:
            try:
                return ids + self.encode(data.decode("utf-8"))
            except UnicodeDecodeError as error:
                ids += self.encode(data[: error.start].decode("utf-8"))
                for byte in data[error.start : error.end]:
                    if byte not in self._single:
                        raise ValueError(
                            f"{self._path}: no token stands for the byte 0x{byte:02x}"
                        ) from error
                    ids.append(self._single[byte])
                data = data[error.end :]
        return ids

    @cached_property
    def _vocabulary(self) -> "Vocabulary":
        from agentree.runtime.constraint import Vocabulary

        return Vocabulary(
            self._bytes, end_ids=self.end_ids, encode=self.encode_bytes, fingerprint=self.fingerprint
        )

    def vocabulary(self) -> "Vocabulary":
        """What the constraint engine knows of this tokenizer; made once."""
        return self._vocabulary


def _broken(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """Read tokenizer.json, or let transformers turn the folder's own tokenizer files into one.

    Raises:
        ModelError: a file is missing or damaged, or belongs to another model.
        Unsupported: the tokenizer is of a kind that has no bytes.
    """
    path = folder / "tokenizer.json"
    settings_path = folder / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    if path.exists():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} can't be read ({error}): the file is damaged") from error
    else:
        text = _converted(folder)
    try:
        return Tokenizer(text, path, settings, config)
    except (TypeError, AttributeError, KeyError) as error:
        raise ModelError(f"{path} is no tokenizer file ({error!r}): it is damaged or too new") from error


def _converted(folder: Path) -> str:
    from transformers import AutoTokenizer

    try:
        load = cast("Any", AutoTokenizer).from_pretrained
        slow = load(str(folder), local_files_only=True, trust_remote_code=False)
        return cast("str", slow.backend_tokenizer.to_str())
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{folder} has no tokenizer.json, and none could be made of its files: {reason}"
        ) from error


def read_template(folder: Path) -> str | None:
    """The chat template: chat_template.jinja, or what tokenizer_config.json has ("default" of several)."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} can't be read ({error}): the file is damaged") from error
    settings_path = folder / "tokenizer_config.json"
    given: object = read_json(settings_path).get("chat_template") if settings_path.exists() else None
    if isinstance(given, list):
        entries = [cast("dict[str, Any]", e) for e in cast("list[object]", given) if isinstance(e, dict)]
        given = {str(entry.get("name")): entry.get("template") for entry in entries}.get("default")
    return given if isinstance(given, str) else None
