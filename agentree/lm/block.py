"""What is used in an `async with` block only, and says so wherever it is used in another way."""

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn

from typing_extensions import TypeVar

from agentree.errors import InvalidArgument

T_co = TypeVar("T_co", covariant=True)


class Block(AbstractAsyncContextManager[T_co, bool | None]):
    """An asynchronous context manager. What it is taken for without `async with` is an InvalidArgument."""

    def __init__(
        self, opens: AbstractAsyncContextManager[T_co, bool | None], *, call: str, name: str, inside: type
    ) -> None:
        """`call` is how it was written, `name` a name for what the block gives: an `inside`."""
        self._opens = opens
        self._call = call
        self._name = name
        self._inside = inside

    def __repr__(self) -> str:
        """How it is used."""
        return f"<async with {self._call} as {self._name}>"

    async def __aenter__(self) -> T_co:
        """Enter the block."""
        return await self._opens.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> bool | None:
        """Leave the block."""
        return await self._opens.__aexit__(exc_type, exc, tb)

    def __getattr__(self, name: str) -> NoReturn:
        """Name the block that the attribute is for. Other attributes are missing as anywhere."""
        if name.startswith("_") or not hasattr(self._inside, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._refuse(f"{self._name}.{name}")

    def __enter__(self) -> NoReturn:
        """Refuse a plain `with`."""
        self._refuse(self._name)

    def __exit__(self, *_: object) -> None:
        """Never reached: `with` looks for it before it enters."""

    def __await__(self) -> NoReturn:
        """Refuse `await`."""
        self._refuse(self._name)

    def __iter__(self) -> NoReturn:
        """Refuse a loop."""
        self._refuse(self._name)

    def __aiter__(self) -> NoReturn:
        """Refuse an asynchronous loop."""
        self._refuse(self._name)

    def __getitem__(self, index: Any, /) -> NoReturn:
        """Refuse an index."""
        self._refuse(f"{self._name}[{index!r}]")

    def _refuse(self, used: str) -> NoReturn:
        raise InvalidArgument(
            f"{self._call} opens a block: write `async with {self._call} as {self._name}:` and use {used} "
            "inside of it"
        )
