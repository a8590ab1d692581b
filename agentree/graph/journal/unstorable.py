"""What can't be written into a journal, in words."""

_LONGEST = 80


class Unstorable(Exception):
    """A value or type that can't be written; the text says which, where in what, and what to do."""

    def __init__(self, what: str, way: str, at: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way = way
        self.at = at
        """Where it lies: fields, keys and indices from outside in."""

    def under(self, step: str) -> "Unstorable":
        """The same, seen from one level further out; what is too long to read is cut."""
        self.at = (step if len(step) <= _LONGEST else step[: _LONGEST - 1] + "…") + self.at
        return self

    def __str__(self) -> str:
        """One line."""
        return f"{self.what}{f', at {self.at}' if self.at else ''}: {self.way}"


class NeedsRuntime(Unstorable):
    """A value holds a transcript, and is read where there is no runtime that it could belong to."""

    def __init__(self) -> None:
        super().__init__("a transcript", "it is read with a runtime only")


def first_lines(error: Exception) -> str:
    """The beginning of an error's text, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) or type(error).__name__
