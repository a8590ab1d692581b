"""What pyright must infer of tools; checked by `pyright`, never run."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, assert_type

from agentree.tools import Tool, calculator, file_tools, tool


@tool
def add(a: int, b: float = 1.0) -> str:
    return f"{a + b}"


@tool(retries=2, timeout=5, pure=True, max_calls=3)
async def fetch(url: str) -> bytes:
    return url.encode()


class Shop:
    @tool
    def price(self, item: str) -> float:
        return float(len(item))

    @tool(name="shop.buy")
    async def buy(self, item: str, *, count: int = 1) -> list[str]:
        return [item] * count


class Echo:
    def __call__(self, text: str) -> str:
        return text


assert_type(add(1, b=2.0), str)
assert_type(add.name, str)
add("1")  # pyright: ignore[reportArgumentType]
add()  # pyright: ignore[reportCallIssue]
add(1, c=2)  # pyright: ignore[reportCallIssue]


async def use() -> None:
    assert_type(await fetch("x"), bytes)
    assert_type(await Shop().buy("x", count=2), list[str])
    await Shop().buy(1)  # pyright: ignore[reportArgumentType]


shop = Shop()
price: Tool[[str], float] = shop.price
assert_type(shop.price("x"), float)
assert_type(Shop.price(shop, "x"), float)
shop.price(1)  # pyright: ignore[reportArgumentType]

assert_type(calculator("1"), str)
price_of: Tool[[str, int], float] = shop.price  # pyright: ignore[reportAssignmentType]
search, read = file_tools(Path())
assert_type(search("x"), str)
assert_type(read("x", first_line=2), str)
assert_type(tool(Echo())("x"), str)
assert_type(tool(name="add_one")(partial(add, b=1.0))(1), str)

any_tools: list[Tool[..., Any]] = [add, fetch, shop.price, calculator]
plain: Callable[[str], Awaitable[bytes]] = fetch
tool(retries="2")  # pyright: ignore[reportArgumentType]
