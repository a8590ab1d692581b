"""Python types as JSON Schemas that leave nothing out, or a reason why there is none."""

from agentree.json_types.exact import FORMATS, PYTHON_PATTERN, NoForm, Unenforceable, exact_schema

__all__ = ["FORMATS", "PYTHON_PATTERN", "NoForm", "Unenforceable", "exact_schema"]
