"""Python types as JSON Schemas that leave nothing out, or a reason why there is none."""

from agentree.json_types.exact import exact_schema
from agentree.json_types.generator import FORMATS, PYTHON_PATTERN
from agentree.json_types.refusals import NoForm, Unenforceable

__all__ = ["FORMATS", "PYTHON_PATTERN", "NoForm", "Unenforceable", "exact_schema"]
