"""Values as JSON and back, exactly: by what they are, for the types that a program declares.

A value is written by its own structure: plain values and containers as they are, everything else under the
name of its type, with whatever it is made of. A type that no declaration of the program names is refused, and
so is what would come back as something else.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentree.graph.journal.classes import Classes
from agentree.graph.journal.fingerprint import digest
from agentree.graph.journal.reading_values import Reader
from agentree.graph.journal.unstorable import Unstorable, first_lines
from agentree.graph.journal.writing import NOTHING, Parts, Writer
from agentree.tools import Tool

if TYPE_CHECKING:
    from agentree.lm import Transcript

_DEEP = "little is left of Python's stack: call the program from a less deep place, or sys.setrecursionlimit"


class Values:
    """The types of one program, and how their values are written.

    Raises:
        Unstorable: when made, for a declared type whose values can't be written.
    """

    def __init__(self, forms: Iterable[tuple[str, Any]], tools: Iterable[Tool[..., Any]] = ()) -> None:
        """`forms` are the declared types, each with the words that say where it is declared."""
        self._tools = tuple(tools)
        self._classes = Classes(forms)
        self._changed: dict[str, list[str]] = {}
        """By name, the fields that classes had which have changed since."""

    def write(self, value: Any, base: "Transcript | None" = None, state: Parts = NOTHING) -> Any:
        """A value as JSON values. Transcripts in it are written as what they add to `base`.

        What it shares with `state` is written as a part of it. Raises Unstorable for what would not come back
        as it is.
        """
        return self._written(value, Writer(self._classes, base, state))

    def write_state(self, value: Any) -> tuple[Any, Parts]:
        """A state as JSON values, and what other values may share with it. Raises Unstorable as `write`."""
        writer = Writer(self._classes, None, NOTHING)
        return self._written(value, writer), writer.parts

    def _written(self, value: Any, writer: Writer) -> Any:
        try:
            return writer.write(value)
        except Unstorable as e:
            raise e.under(value.__class__.__name__) if e.at else e from None
        except RecursionError as e:
            raise Unstorable(f"a deep value of type {value.__class__.__name__}", _DEEP) from e

    def read(
        self,
        data: Any,
        base: "Transcript | None" = None,
        state: Callable[[], Parts] = lambda: NOTHING,
        *,
        empty: "Transcript | None",
    ) -> Any:
        """The value that `write` gave this for, on the same base; `empty` is a transcript without a token.

        `state` gives the parts of the state that it was written with, if it shares any.

        Raises Unstorable where it does not fit, NeedsRuntime where it holds a transcript and `empty` is None.
        """
        try:
            return self._reader(base, empty, state).read(data)
        except RecursionError as e:
            raise Unstorable("a deep value", _DEEP) from e
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
            raise Unstorable("a value that does not fit", f"its types have changed ({first_lines(e)})") from e

    def transcript(
        self, data: Mapping[str, Any], base: "Transcript | None", empty: "Transcript | None"
    ) -> "Transcript":
        """A transcript that `stored` wrote."""
        return self._reader(base, empty, lambda: NOTHING).transcript(data)

    def _reader(
        self, base: "Transcript | None", empty: "Transcript | None", state: Callable[[], Parts]
    ) -> Reader:
        return Reader(self._classes, base, empty, self._tools, self._changed, state)

    def described(self) -> dict[str, Any]:
        """Each declared class in words: tells whether types have changed."""
        return self._classes.described()

    def versions(self) -> dict[str, Any]:
        """Each declared class by a digest and its fields: what `follow` is given when a run is resumed."""
        fields = self._classes.fields()
        return {name: [digest(about), fields[name]] for name, about in self.described().items()}

    def follow(self, versions: Mapping[str, Any]) -> None:
        """Read what was written by these versions of the classes: as far as they have changed, fit it."""
        now = self.versions()
        for name, (known, fields) in versions.items():
            if name in now and now[name][0] != known:
                self._changed[name] = fields
