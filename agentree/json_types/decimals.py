"""Decimals as JSON Schemas: their digits are bounds and multiples of powers of ten."""

from decimal import Decimal
from typing import Any, Final

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from agentree.json_types.refusals import refused

_MOST_DIGITS: Final = 15
"""Numbers with a fraction are never written with more digits."""


def decimal_form(schema: core_schema.DecimalSchema) -> JsonSchemaValue:
    """Numbers within bounds, with so many digits and places."""
    out: JsonSchemaValue = {"type": "number"}
    for name, keyword in (
        ("ge", "minimum"), ("le", "maximum"), ("gt", "exclusiveMinimum"), ("lt", "exclusiveMaximum"),
        ("multiple_of", "multipleOf"),
    ):  # fmt: skip
        bound = schema.get(name)
        if bound is not None:
            plain = _plain(bound)
            if plain is None:
                return refused(f"has the bound {bound}, which is no float", "fewer digits")
            out[keyword] = plain
    if "multipleOf" in out:
        out["allOf"] = [_below(20)]  # Decimals have 28 digits, and remainders need them all
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    if digits is None and places is None:
        return out
    if digits is None:
        return _both(out, {"multipleOf": _power(-(places or 0))})
    if places is not None and places > digits:
        return refused(f"has decimal_places={places} over max_digits={digits}", "the smaller number for both")
    if digits > _MOST_DIGITS:
        fraction = {} if places is None else {"multipleOf": _power(-places)}
        return _both(out, {**_below(digits - (places or 0)), **fraction})
    options = range(digits + 1) if places is None else (places,)
    forms = [{**_below(digits - p), "multipleOf": _power(-p)} for p in options]
    return _both(out, forms[0] if len(forms) == 1 else {"anyOf": [{"type": "number", **f} for f in forms]})


def _plain(given: object) -> int | float | None:
    bound = Decimal(str(given))
    if not bound.is_finite():
        return None
    if bound == bound.to_integral_value():
        return int(bound)
    return float(bound) if Decimal(repr(float(bound))) == bound else None


def _power(exponent: int) -> int | float:
    return 10**exponent if exponent >= 0 else float(f"1e{exponent}")


def _below(digits: int) -> dict[str, Any]:
    return {"exclusiveMinimum": -(10**digits), "exclusiveMaximum": 10**digits}


def _both(a: JsonSchemaValue, b: JsonSchemaValue) -> JsonSchemaValue:
    return {**a, **b} if not set(a) & set(b) else {**a, "allOf": [*a.get("allOf", ()), b]}
