"""The file tools: what they find and show, and that nothing leads out of their folder."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentree.errors import ToolDefinitionError
from agentree.tools import Tool, ToolFailed, ToolRetry, file_tools
from agentree.tools.builtin import files

SECRET = "the secret sentence"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a few files, beside a file that must stay unseen."""
    folder = tmp_path / "docs"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.md").write_text("# Title\nRadix trees share prefixes.\n\nThe end: größe\n")
    (folder / "deep" / "b.txt").write_text("one\ntwo\nthe RADIX tree\n")
    (folder / "deep" / "er" / "c.txt").write_text("a tree that is radix\nprefixes too\n")
    (folder / ".hidden").write_text("radix hidden\n")
    (folder / "binary.bin").write_bytes(b"radix\0\1\2")
    (folder / "empty.txt").write_text("")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "docs-secret").mkdir()
    (tmp_path / "docs-secret" / "s.txt").write_text(SECRET)
    return folder


def tools(root: Path) -> tuple[Tool[[str], str], Tool[..., str]]:
    return file_tools(root)


def test_names_and_schemas(root: Path) -> None:
    search, read = tools(root)
    assert (search.name, read.name) == ("search_files", "read_file")
    assert search.pure and read.pure
    assert search.schema["required"] == ["query"] and read.schema["required"] == ["path"]


def test_search_finds_lines_in_path_order(root: Path) -> None:
    search, _ = tools(root)
    assert search("radix TREE").split("\n") == [
        "a.md:2: Radix trees share prefixes.",
        "deep/b.txt:3: the RADIX tree",
    ]
    assert search("  größe ") == "a.md:4: The end: größe"
    assert search("GRÖSSE") == "No line contains 'GRÖSSE'." or search("GRÖSSE").startswith("a.md:4")


def test_search_falls_back_to_all_words(root: Path) -> None:
    search, _ = tools(root)
    assert search("tree radix").split("\n") == [
        "a.md:2: Radix trees share prefixes.",
        "deep/b.txt:3: the RADIX tree",
        "deep/er/c.txt:1: a tree that is radix",
    ]
    assert search("radix hidden") == "No line contains 'radix hidden'."


@pytest.mark.parametrize("query", ["", "  ", "\n"])
def test_search_for_nothing(root: Path, query: str) -> None:
    with pytest.raises(ToolRetry, match="empty"):
        tools(root)[0](query)


def test_search_takes_no_pattern(root: Path) -> None:
    (root / "re.txt").write_text("a.*b\naxxb\n")
    assert tools(root)[0]("a.*b") == "re.txt:1: a.*b"


def test_search_is_bounded_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "many.txt").write_text("needle\n" * 1000 + "x" * 5000 + "needle" + "y" * 5000)
    found = tools(root)[0]("needle").split("\n")
    assert len(found) == files.MAX_MATCHES + 1 and found[-1].startswith("[only the first 20 lines")
    (root / "many.txt").write_text("x" * 5000 + "needle" + "y" * 5000)
    (line,) = tools(root)[0]("needle").split("\n")
    assert "needle" in line and len(line) < 400
    monkeypatch.setattr(files, "MAX_FILES", 1)
    assert "stopped after 1 files" in tools(root)[0]("needle")
    monkeypatch.setattr(files, "MAX_FILES", 10**6)
    monkeypatch.setattr(files, "MAX_SCANNED", 50)
    assert "the rest was not searched" in tools(root)[0]("prefixes")


def test_read(root: Path) -> None:
    _, read = tools(root)
    assert read("a.md") == "# Title\nRadix trees share prefixes.\n\nThe end: größe"
    assert read("deep/../a.md", first_line=4) == "The end: größe"
    assert read(str(root / "a.md"), 4) == "The end: größe"
    assert read("empty.txt") == "[empty.txt is empty]"
    with pytest.raises(ToolRetry, match=r"has 4 lines.*no line 5"):
        read("a.md", 5)


def test_read_pages_through_a_long_file(root: Path) -> None:
    _, read = tools(root)
    lines = [f"line {i}" for i in range(1, 3001)]
    (root / "long.txt").write_text("\n".join(lines))
    got: list[str] = []
    while len(got) < len(lines):
        page = read("long.txt", len(got) + 1)
        assert len(page) <= files.MAX_TEXT + 100
        shown = page.split("\n")
        if shown[-1].startswith("["):
            assert (
                shown[-1]
                == f"[lines {len(got) + 1:,} to {len(got) + len(shown) - 1:,}; the file goes on after that]"
            )
            shown.pop()
        got += shown
    assert got == lines


def test_read_cuts_a_long_line_with_a_notice(root: Path) -> None:
    _, read = tools(root)
    (root / "wide.txt").write_text("a" * 100_000 + "\nnext\n")
    page = read("wide.txt")
    assert "[… 100,000 characters in this line]" in page and "[lines 1 to 1; the file goes on" in page
    assert read("wide.txt", 2) == "next"


def test_huge_files_are_read_within_bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, read = tools(root)
    with (root / "huge.txt").open("wb") as file:
        file.write(b"top\n")
        file.truncate(2**40)  # sparse
    with pytest.raises(ToolFailed, match="no text file"):
        read("huge.txt")
    (root / "big.txt").write_text("top\n" * 10_000)
    monkeypatch.setattr(files, "MAX_SCANNED", 1000)
    assert read("big.txt").endswith("the file goes on after that]")
    with pytest.raises(ToolRetry, match="250 lines that can be read"):
        read("big.txt", 9000)


@pytest.mark.parametrize("path", ["binary.bin"])
def test_binary_files(root: Path, path: str) -> None:
    search, read = tools(root)
    assert "binary.bin" not in search("radix")
    with pytest.raises(ToolFailed, match="no text file"):
        read(path)


def test_broken_text_is_shown_as_far_as_it_goes(root: Path) -> None:
    (root / "latin.txt").write_bytes("größe\r\nzwei\r\n".encode("latin-1"))
    search, read = tools(root)
    assert read("latin.txt") == "gr\ufffd\ufffde\nzwei"
    assert search("zwei") == "latin.txt:2: zwei"
    (root / os.fsdecode(b"bad\xff.txt")).write_text("oddname\n")
    assert search("oddname") == "bad\\xff.txt:1: oddname"


def refused(read: Callable[..., str], path: str) -> bool:
    try:
        return SECRET not in read(path)
    except (ToolFailed, ToolRetry) as e:
        return SECRET not in str(e)


ESCAPES = [
    "../secret.txt",
    "deep/../../secret.txt",
    "deep/er/../../../secret.txt",
    "./.././secret.txt",
    "../docs-secret/s.txt",
    "/etc/passwd",
    "//etc/passwd",
    "~/secret.txt",
    "..",
    "../..",
    "",
    ".",
    "/",
    "a.md/../../secret.txt",
    "a.md\0/../../secret.txt",
    "\0",
    "x" * 300,
    "a/" * 3000,
    "link",
    "folder-link/secret.txt",
    "folder-link/../secret.txt",
    "loop",
    "chain",
    "deep/back/secret.txt",
    "pipe",
    "/proc/self/root/etc/passwd",
    "\ud800",
]


@pytest.fixture
def trapped(root: Path) -> Path:
    """The folder, with links of all kinds in it."""
    outside = root.parent
    (root / "link").symlink_to(outside / "secret.txt")
    (root / "folder-link").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    (root / "chain").symlink_to("link")
    (root / "deep" / "back").symlink_to("../..")
    (root / "inside").symlink_to("deep/b.txt")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_leads_out(trapped: Path, path: str) -> None:
    _, read = tools(trapped)
    with pytest.raises((ToolFailed, ToolRetry)) as caught:
        read(path)
    assert SECRET not in str(caught.value)


def test_outside_is_called_outside(trapped: Path) -> None:
    _, read = tools(trapped)
    for path in ("../secret.txt", "link", "folder-link/secret.txt", "/etc/passwd"):
        with pytest.raises(ToolFailed, match="outside of the folder"):
            read(path)
    with pytest.raises(ToolRetry, match="no file, but a folder"):
        read("deep")
    with pytest.raises(ToolRetry, match="no file, but a folder or a device"):
        read("pipe")
    with pytest.raises(ToolRetry, match=r"there is no file 'b\.md': search_files"):
        read("b.md")


def test_hidden_files_are_left_out(trapped: Path) -> None:
    search, read = tools(trapped)
    (trapped / ".git").mkdir()
    (trapped / ".git" / "config").write_text(SECRET)
    (trapped / "to-hidden").symlink_to(".git/config")
    for path in (".hidden", ".git/config", "to-hidden", "./.hidden"):
        with pytest.raises(ToolFailed, match="is hidden"):
            read(path)
    assert SECRET not in search("secret")


def test_a_name_with_a_line_break_stays_on_one_line(root: Path) -> None:
    (root / "a\nb.txt").write_text("needle")
    assert tools(root)[0]("needle") == "a\\nb.txt:1: needle"


def test_links_inside_work(trapped: Path) -> None:
    search, read = tools(trapped)
    assert read("inside") == read("deep/b.txt")
    assert SECRET not in search("secret") and "secret" not in search("sentence").replace("'sentence'", "")
    assert len(search("radix tree").split("\n")) == 2  # once, not by the link again


PARTS = [
    "..",
    ".",
    "deep",
    "er",
    "link",
    "folder-link",
    "back",
    "secret.txt",
    "docs-secret",
    "s.txt",
    "",
    "docs",
    "a.md",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PARTS), max_size=7).map("/".join))
def test_no_path_reads_the_secret(trapped: Path, path: str) -> None:
    assert refused(tools(trapped)[1], path)
    assert refused(tools(trapped)[1], "/" + path)


def test_a_folder_exchanged_for_a_link_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check of the path and the opening of the file, `deep` becomes a link to the outside."""
    _, read = tools(root)
    (root.parent / "b.txt").write_text(SECRET)
    genuine = os.path.realpath

    def swap(path: Any) -> str:
        resolved = genuine(path)
        (root / "deep").rename(root / "was-deep")
        (root / "deep").symlink_to(root.parent)
        return resolved

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(ToolFailed, match="can't be read"):
        read("deep/b.txt")


def test_a_file_exchanged_for_a_link_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, read = tools(root)
    genuine = os.path.realpath

    def swap(path: Any) -> str:
        resolved = genuine(path)
        (root / "a.md").unlink()
        (root / "a.md").symlink_to(root.parent / "secret.txt")
        return resolved

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(ToolFailed, match="can't be read"):
        read("a.md")


def test_descriptors_are_closed(trapped: Path) -> None:
    search, read = tools(trapped)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        search("radix")
        read("deep/er/c.txt")
        for path in ESCAPES:
            assert refused(read, path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_folder_must_exist(root: Path) -> None:
    for wrong in (root / "missing", root / "a.md"):
        with pytest.raises(ToolDefinitionError, match="no such folder"):
            file_tools(wrong)


def test_a_relative_root_is_fixed_when_the_tools_are_made(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    _, read = file_tools("docs")
    monkeypatch.chdir("/")
    assert read("deep/b.txt").startswith("one")


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(
    names=st.lists(NAMES.filter(lambda name: not name.startswith(".")), min_size=1, max_size=4, unique=True)
)
def test_what_a_search_shows_can_be_read(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is in a name: line breaks, backslashes, and what looks like the escape of another."""
    root = tmp_path_factory.mktemp("odd")
    texts: dict[str, str] = {}
    for i, name in enumerate([*names, "a\x1b.txt", r"a\x1b.txt", r"a\\x1b.txt"]):
        folder = root / f"f\n{i}"
        folder.mkdir()
        (folder / name).write_text(f"needle {i}")
        texts[f"needle {i}"] = name
    (root / os.fsdecode(b"\xff\\xff.txt")).write_text("needle raw")
    for twin in ("t\x1b", r"t\x1b", r"t\\x1b"):  # side by side
        (root / twin).write_text(f"needle {len(twin)}x")
    search_files, read_file = file_tools(root)
    lines = search_files("needle").splitlines()
    assert len(lines) == len(names) + 7
    for line in lines:
        assert line.isprintable()
        path, text = re.fullmatch(r"(.*):\d+: (needle \w+)", line).groups()  # pyright: ignore[reportOptionalMemberAccess]
        assert read_file(path) == text


def test_an_escaped_path_leads_out_of_nothing(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "o\x1b"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("s")
    (root / "l\x1bnk").symlink_to(outside)
    _, read_file = file_tools(root)
    for path in (r"../o\x1b/secret", r"l\x1bnk/secret", r"x\\/../../o\x1b/secret"):
        with pytest.raises((ToolFailed, ToolRetry)):
            read_file(path)
