"""Types that can't be enforced: marked in a schema, so that their places are known once it is whole."""

from typing import Any, Final

WHY: Final = "x-refused"
"""Keyword of a mark: why there is no schema, and what to write instead."""

BEYOND: Final[dict[str, str]] = {
    "ipv4network": "ipaddress.IPv4Interface, or a str and a validator",
    "ipv6network": "ipaddress.IPv6Address, or a str and a validator",
    "ipv6interface": "ipaddress.IPv6Address, or a str and a validator",
    "ipvanynetwork": "ipaddress.IPv4Interface, or a str and a validator",
    "ipvanyinterface": "ipaddress.IPv4Interface, or a str and a validator",
    "regex": "str",
    "base64": "bytes or str",
    "base64url": "bytes or str",
    "file-path": "pathlib.Path",
    "directory-path": "pathlib.Path",
    "json-string": "the type of the value itself",
    "name-email": "EmailStr",
    "zoneinfo": "a Literal of the zones that are meant",
    "color": "a Literal of the colors that are meant",
}
"""Formats of pydantic's own types that no pattern can decide, and what to write instead."""

CHECKS: Final[dict[str, str]] = {"import_string": "a Literal of names", "validate_new": "pathlib.Path"}
"""Checks of pydantic's own types that show in no format, and what to write instead."""


class NoForm(ValueError):
    """A type has no JSON form: where in it, what, and what to write instead."""


class Unenforceable(ValueError):
    """A type checks more than can be enforced: where in it, what, and what to write instead."""


def sorry(instead: str) -> str:
    """How a refusal ends."""
    return f"which can't be enforced: write {instead}"


def refused(what: str, instead: str) -> dict[str, Any]:
    """A mark."""
    return {WHY: f"{what}, {sorry(instead)}"}
