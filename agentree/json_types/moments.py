"""Dates, times and spans of time as JSON Schemas."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from agentree.json_types.days import day_range
from agentree.json_types.refusals import refused


def date_form(schema: core_schema.DateSchema) -> JsonSchemaValue:
    """Days, within bounds."""
    if "now_op" in schema:
        return refused("is compared with today", "a fixed bound, as in Field(le=date(2024, 12, 31))")
    lows, highs = [schema.get("ge")], [schema.get("le")]
    gt, lt = schema.get("gt"), schema.get("lt")
    try:
        lows.append(None if gt is None else gt + timedelta(1))
        highs.append(None if lt is None else lt - timedelta(1))
        low = max((d for d in lows if d is not None), default=None)
        high = min((d for d in highs if d is not None), default=None)
        out: JsonSchemaValue = {"type": "string", "format": "date"}
        return out if low is None and high is None else {**out, "pattern": day_range(low, high)}
    except (ValueError, OverflowError):
        return refused("has bounds that no day satisfies", "other bounds")


def moment_form(schema: Mapping[str, Any], form: str, instead: str) -> JsonSchemaValue:
    """Times of a day, or days with them; `instead` is what to write where they have bounds."""
    if "now_op" in schema:
        return refused("is compared with the present moment", "a datetime without that, and a validator")
    if any(schema.get(k) is not None for k in ("ge", "gt", "le", "lt")):
        return refused("has bounds that depend on time zones", instead)
    zone = schema.get("tz_constraint")
    if zone not in (None, "aware", "naive"):
        return refused("wants one time zone", "AwareDatetime")
    if schema.get("microseconds_precision") == "error":
        return refused("wants six digits after the second at most", "microseconds_precision='truncate'")
    return {"type": "string", "format": f"local-{form}" if zone == "naive" else form}


def timedelta_form(schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
    """Spans of time."""
    if any(schema.get(k) is not None for k in ("ge", "gt", "le", "lt")):
        return refused("is a timedelta with bounds", "a number of seconds with these bounds")
    if schema.get("microseconds_precision") == "error":
        return refused("wants six digits after the second at most", "microseconds_precision='truncate'")
    return {"type": "string", "format": "duration"}
