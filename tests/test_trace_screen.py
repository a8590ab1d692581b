"""Lines that are drawn again in place, on a terminal that does what the codes say."""

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agentree.trace.line import Line
from agentree.trace.screen import Screen

WIDTH, HEIGHT = 12, 7
_PART = re.compile(r"\x1b\[(\?25)?([\d;]*)([A-Za-z])|(.)", re.DOTALL)


class Terminal(io.StringIO):
    """Rows of text as a terminal of WIDTH x HEIGHT cells shows them, with what was scrolled out above."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [""]
        self.row = self.column = 0
        self.cursor = True
        self.sent = ""

    def write(self, text: str) -> int:
        self.sent += text
        for mode, number, code, char in _PART.findall(text):
            if mode:
                self.cursor = code == "h"
            elif code == "A":
                self.row -= int(number)
                assert self.row >= max(len(self.rows) - HEIGHT, 0), "a cursor can't leave the screen"
            elif code == "K":
                self.rows[self.row] = self.rows[self.row][: 0 if number == "2" else self.column]
            elif code != "m":
                assert not code, f"unknown code {code!r}"
                self._put(char)
        return len(text)

    def _put(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.rows):
                self.rows.append("")
        else:
            if self.column == WIDTH:
                self._put("\n")
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + char + row[self.column + 1 :]
            self.column += 1


def screen() -> tuple[Screen, Terminal]:
    terminal = Terminal()
    console = Console(
        file=terminal,
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
        _environ={"TERM": "xterm"},
    )
    return Screen(console), terminal


TEXTS = st.text("ab[/]", max_size=WIDTH + 3)
LINES = st.lists(st.tuples(TEXTS, st.sampled_from(["", "bold red"])), max_size=HEIGHT + 2)
PRINTED = st.text("xy", min_size=1, max_size=WIDTH - 1)


@given(st.lists(st.one_of(LINES, PRINTED), max_size=12))
def test_the_last_lines_stand_below_what_was_printed(acts: list[list[tuple[str, str]] | str]) -> None:
    shown, terminal = screen()
    printed: list[str] = []
    last: list[str] = []
    for act in acts:
        if isinstance(act, str):
            shown.above(Text(act))
            printed.append(act)
        else:
            shown.draw([Line(text, style) for text, style in act])
            last = [text[: WIDTH - 1] for text, _ in act[: HEIGHT - 1]]
        assert [*printed, *last, ""] == terminal.rows[: len(printed) + len(last) + 1]
        assert not any(terminal.rows[len(printed) + len(last) + 1 :])
        assert (terminal.row, terminal.column) == (len(printed) + len(last), 0)
    shown.close()
    assert terminal.cursor
    assert [row for row in terminal.rows if row] == printed


def test_what_did_not_change_is_not_sent_again() -> None:
    shown, terminal = screen()
    shown.draw([Line("first", "red"), Line("second"), Line("third")])
    terminal.sent = ""
    shown.draw([Line("first", "red"), Line("2nd"), Line("third")])
    assert "2nd" in terminal.sent
    assert not {"first", "third"} & set(re.findall("[a-z]+", terminal.sent))
    assert terminal.rows == ["first", "2nd", "third", ""]


def test_nothing_is_drawn_where_the_cursor_can_not_move() -> None:
    for options in ({"force_terminal": False}, {"force_terminal": True, "_environ": {"TERM": "dumb"}}):
        out = io.StringIO()
        shown = Screen(Console(file=out, width=WIDTH, height=HEIGHT, **options))  # pyright: ignore[reportArgumentType]
        shown.draw([Line("first")])
        shown.close()
        assert out.getvalue() == ""


@given(st.lists(st.tuples(st.text("a日é"), st.sampled_from(["", "red"]))), st.integers(0, 9))
def test_a_line_counts_cells_and_is_cut_by_them(pieces: list[tuple[str, str]], width: int) -> None:
    line = Line()
    for text, style in pieces:
        line.append(text, style)
    assert line.plain == "".join(text for text, _ in pieces)
    assert line.cells == cell_len(line.plain)
    cut = line.cut(width)
    assert cut.cells == min(line.cells, width) == cell_len(cut.plain)
    assert line.plain.startswith(cut.plain.rstrip())
