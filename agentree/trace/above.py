"""What a program prints itself, shown above a live view in the same terminal."""

import io
import threading
from typing import TextIO

from rich.text import Text

from agentree.trace.screen import Screen


class Above(io.TextIOBase):
    """Stands in for stdout or stderr: whole lines are printed above the view, the rest waits for its end."""

    def __init__(self, screen: Screen, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """Where the console itself writes to: rich looks for this name."""
        self._screen = screen
        self._lock = threading.Lock()
        self._pending = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self.rich_proxied_file, name)

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the stream it stands for."""
        return self.rich_proxied_file.encoding

    @property
    def errors(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the stream it stands for."""
        return self.rich_proxied_file.errors

    def isatty(self) -> bool:
        """It stands for a terminal."""
        return True

    def writable(self) -> bool:
        """It is there to be written to."""
        return True

    def fileno(self) -> int:
        """That of the stream it stands for."""
        return self.rich_proxied_file.fileno()

    def write(self, text: str) -> int:
        """Print the lines that are complete now; colours are kept, nothing is taken for markup."""
        with self._lock:
            *lines, self._pending = (self._pending + text).split("\n")
            if lines:
                self._screen.above(Text("\n").join(map(Text.from_ansi, lines)))
        return len(text)

    def finish(self) -> None:
        """Print a last line that no line break ended."""
        if self._pending:
            self.write("\n")
