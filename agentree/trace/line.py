"""A line of a drawing: pieces of text with their styles. Much cheaper than rich's Text, which can do more."""

from collections.abc import Iterable
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style


class Line:
    """Text that grows to the right. Nothing in it is markup, and nothing is taken out: escape it first."""

    __slots__ = ("cells", "pieces")

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = []
        """Each with its style, as rich spells styles."""
        self.cells = 0
        """How many cells of a terminal it takes so far."""
        self.append(text, style)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and self.pieces == other.pieces

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join([text for text, _ in self.pieces])

    def append(self, text: str, style: str = "") -> Self:
        """Add text at the end."""
        if text:
            pieces = self.pieces
            if pieces and pieces[-1][1] == style:
                pieces[-1] = (pieces[-1][0] + text, style)
            else:
                pieces.append((text, style))
            self.cells += len(text) if text.isascii() else cell_len(text)
        return self

    def add(self, line: "Line") -> Self:
        """Add all of another line at the end."""
        self.pieces += line.pieces
        self.cells += line.cells
        return self

    def pad(self, cells: int) -> Self:
        """Fill up with blanks to so many cells."""
        return self.append(" " * (cells - self.cells))

    def cut(self, width: int) -> "Line":
        """The line, or its beginning where it takes more than so many cells."""
        if self.cells <= width:
            return self
        line = Line()
        for text, style in self.pieces:
            room = max(width - line.cells, 0)
            line.append(text if cell_len(text) <= room else set_cell_size(text, room), style)
        return line

    def segments(self) -> list[Segment]:
        """What rich prints."""
        return [Segment(text, Style.parse(style) if style else None) for text, style in self.pieces]


def put(console: Console, lines: Iterable[Line]) -> None:
    """Print lines at once, and for what they are: nothing is wrapped or cropped."""
    made = [segment for line in lines for segment in (*line.segments(), Segment.line())]
    console.print(Segments(made), end="", crop=False)
