"""A chat template's source compiled in a sandbox. jinja2 is imported on first use."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, NoReturn, cast

from agentree.errors import ModelError

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

FIXED_DAY = date(2024, 7, 26)
"""What a template that insists on a date is told. Today's would change every prompt once a day."""


class TemplateFailed(ModelError):
    """A chat template can't be compiled, or refused a conversation: says which of the two and why."""


class Renderer:
    """Renders conversations with one template. `notes` says in words what was assumed to make it run.

    The template runs in jinja2's immutable sandbox: it reaches neither Python's attributes nor the machine,
    and it can't change the messages. There is no clock either, so equal conversations render equally.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        from jinja2 import TemplateError

        environment = _environment()
        self._refusals: tuple[type[Exception], ...] = (
            TemplateError,
            TypeError,
            ValueError,
            KeyError,
            LookupError,
        )
        self.notes: list[str] = []
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise TemplateFailed(f"the chat template can't be compiled: {error}{where}") from error
        self._fixed: dict[str, Any] = {"bos_token": bos, "eos_token": eos, "enable_thinking": False}
        try:
            self.render([{"role": "user", "content": "a"}])
        except TemplateFailed as error:
            if "strftime_now" not in str(error):
                return
            _globals(environment)["strftime_now"] = FIXED_DAY.strftime
            self._template = environment.from_string(source)
            self.notes.append(f"the template's date is always {FIXED_DAY.isoformat()}")

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Any] | None = None, turn: bool = False
    ) -> str:
        """The whole conversation; `turn` adds the assistant's opening. Raises TemplateFailed on a refusal."""
        try:
            return self._template.render(
                messages=list(messages), tools=tools, add_generation_prompt=turn, **self._fixed
            )
        except Exception as error:  # a template is foreign code: whatever it raises, it refuses
            raise TemplateFailed(f"the chat template refused a conversation: {error}") from error


def _environment() -> "ImmutableSandboxedEnvironment":
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Marked(Extension):
        """`{% generation %}` marks what a model was trained on; here its body is just text."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: object = "") -> NoReturn:
        raise TemplateError(str(message))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Marked, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    _globals(environment)["raise_exception"] = refuse
    return environment


def _globals(environment: "ImmutableSandboxedEnvironment") -> dict[str, Any]:
    return cast("dict[str, Any]", environment.globals)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
