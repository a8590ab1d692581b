"""The tokenizer: round trips, control tokens as text, bytes of tokens, text in the middle of text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from agentree.errors import ModelError, Unsupported
from agentree.runtime.model.config import read_config
from agentree.runtime.model.tokenizer import Tokenizer, read_template, read_tokenizer
from tests.test_model_gguf import SENTENCEPIECE
from tests.tiny_models import CHATML, SPECIAL_TOKENS, tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tokenizer"), vocab=520)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return read_tokenizer(folder, read_config(folder))


@pytest.fixture(scope="module")
def sentencepiece(folder: Path) -> Tokenizer:
    backend, _ = SENTENCEPIECE
    config = replace(read_config(folder), vocab_size=600)
    return Tokenizer(backend.to_str(), folder / "tokenizer.json", {}, config)


TEXTS = st.lists(st.one_of(st.text(), st.sampled_from([*SPECIAL_TOKENS, "the answer", " ", "</s>"]))).map(
    "".join
)


@settings(deadline=None)
@given(text=TEXTS)
def test_plain_text_round_trips(tokenizer: Tokenizer, sentencepiece: Tokenizer, text: str) -> None:
    """Strings that look like control tokens are text, and no text gains or loses a space."""
    for one in (tokenizer, sentencepiece):
        if one is sentencepiece:
            # SentencePiece writes a space as this character and can't tell the two apart.
            text = text.replace("\u2581", "")
        ids = one.encode(text)
        assert all(one.token_bytes(i) is not None for i in ids)
        assert b"".join(one.token_bytes(i) or b"" for i in ids).decode() == text
        assert one.decode(ids) == one.decode(ids, special=True) == text


@settings(deadline=None)
@given(text=TEXTS)
def test_markup_is_what_the_file_says(folder: Path, tokenizer: Tokenizer, text: str) -> None:
    expected = Backend.from_file(str(folder / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, special=True) == expected
    assert tokenizer.decode(expected, special=True) == text


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "stripping"])
def overlapping(request: pytest.FixtureRequest, folder: Path) -> tuple[Backend, Tokenizer]:
    """Added tokens that begin alike, of both sorts; one may take the spaces before it."""
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([AddedToken("<a>", normalized=False, lstrip=request.param), "<a><b>"])
    backend.add_tokens([AddedToken("<a><b", normalized=False), AddedToken("b>", normalized=False)])
    config = replace(read_config(folder), vocab_size=600)
    return backend, Tokenizer(backend.to_str(), folder / "tokenizer.json", {}, config)


@settings(deadline=None)
@given(parts=st.lists(st.sampled_from(["<a>", "<b>", "<", "a", "b", ">", " ", "<|im_end|>", "the"])))
def test_the_longest_added_token_of_those_that_begin_first_is_read(
    overlapping: tuple[Backend, Tokenizer], parts: list[str]
) -> None:
    backend, tokenizer = overlapping
    text = "".join(parts)
    assert tokenizer.encode(text, special=True) == backend.encode(text, add_special_tokens=False).ids


def test_a_token_that_is_not_in_byte_letters_is_its_text(folder: Path) -> None:
    spec = json.loads((folder / "tokenizer.json").read_text())
    spec["model"]["vocab"] |= {"naïve 日本": 590, "Ġend": 591}
    tokenizer = Tokenizer(
        json.dumps(spec), folder / "tokenizer.json", {}, replace(read_config(folder), vocab_size=600)
    )
    assert tokenizer.token_bytes(590) == "naïve 日本".encode()
    assert tokenizer.token_bytes(591) == b" end"


@settings(deadline=None)
@given(data=st.binary())
def test_bytes_round_trip(tokenizer: Tokenizer, data: bytes) -> None:
    ids = tokenizer.encode_bytes(data)
    assert b"".join(tokenizer.token_bytes(i) or b"" for i in ids) == data
    assert tokenizer.decode(ids) == data.decode("utf-8", "replace")


def test_surrogates_are_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude42")) == "🙂"


def test_control_tokens_have_no_bytes(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user", special=True)
    assert ids[0] == 1
    assert tokenizer.token_bytes(1) is None
    assert tokenizer.decode(ids) == "user"
    assert tokenizer.encode("<|im_start|>user")[0] != 1
    assert (tokenizer.bos, tokenizer.eos, tokenizer.end_ids) == ("<|im_start|>", "<|im_end|>", {0, 2})


def test_ids_beyond_the_tokenizer_have_no_bytes(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    (folder / "tokenizer.json").write_text(Backend.from_file(str(folder / "tokenizer.json")).to_str())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 600}))
    tokenizer = read_tokenizer(folder, read_config(folder))
    assert tokenizer.size == 600
    assert [tokenizer.token_bytes(i) for i in range(512, 600)] == [None] * 88


def test_added_tokens(tmp_path: Path) -> None:
    """Added text tokens have bytes; a control token past the model's ids is refused by name."""
    folder = tiny_llama(tmp_path, vocab=600)
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    known = backend.get_vocab_size()
    backend.add_tokens(["<tool_call>"])
    backend.add_special_tokens(["<|far|>"])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": known + 1}))
    backend.save(str(folder / "tokenizer.json"))
    tokenizer = read_tokenizer(folder, read_config(folder))
    assert tokenizer.encode("<tool_call>") == [known]
    assert tokenizer.token_bytes(known) == b"<tool_call>"
    assert tokenizer.decode(tokenizer.encode("<|far|>")) == "<|far|>"
    with pytest.raises(ModelError, match="no row in the model"):
        tokenizer.encode("<|far|>", special=True)


def test_vocabulary(tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.vocabulary()
    assert vocabulary is tokenizer.vocabulary()
    assert vocabulary.tokens == tuple(tokenizer.token_bytes(i) for i in range(tokenizer.size))
    assert (vocabulary.end_ids, vocabulary.fingerprint) == (tokenizer.end_ids, tokenizer.fingerprint)


def test_fingerprints_tell_tokenizers_apart(
    folder: Path, tokenizer: Tokenizer, sentencepiece: Tokenizer
) -> None:
    again = read_tokenizer(folder, read_config(folder))
    assert again.fingerprint == tokenizer.fingerprint != sentencepiece.fingerprint


def test_other_kinds_are_refused(folder: Path) -> None:
    spec = json.loads((folder / "tokenizer.json").read_text())
    spec["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(Unsupported, match="only byte-level BPE and SentencePiece"):
        Tokenizer(json.dumps(spec), folder / "tokenizer.json", {}, read_config(folder))


def test_a_folder_without_tokenizer_json(tmp_path: Path) -> None:
    """vocab.json and merges.txt, as old repositories have them: transformers makes the tokenizer."""
    folder = tiny_llama(tmp_path, architectures=["Qwen2ForCausalLM"], model_type="qwen2")
    spec = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(spec["model"]["vocab"]))
    merges = [" ".join(pair) for pair in spec["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    settings_ = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_))
    tokenizer = read_tokenizer(folder, read_config(folder))
    assert tokenizer.decode(tokenizer.encode("The answer is 391.")) == "The answer is 391."
    assert tokenizer.encode("<|im_end|>", special=True) == [2]


def test_templates(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    assert read_template(folder) == CHATML
    settings_ = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": settings_}))
    assert read_template(folder) == "d"
    (folder / "chat_template.jinja").write_text("j")
    assert read_template(folder) == "j"
    assert read_template(tiny_llama(tmp_path, name="none", template=None)) is None
