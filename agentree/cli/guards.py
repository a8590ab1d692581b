"""Finds what a script runs when it is only to be loaded."""

import ast
from collections.abc import Iterator
from pathlib import Path

from agentree.cli.report import WrongUse

_RUNNERS = ("asyncio.run", "anyio.run", "trio.run")


def refuse_running(path: Path) -> None:
    """Raises WrongUse for a file that runs its program as soon as it is loaded, naming the line.

    What stands under `if __name__ == "__main__":` is not run here. Files that are no Python pass: importing
    them says what is wrong.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for call in _calls(tree.body):
        name = ast.unparse(call.func)
        if name in _RUNNERS or name.endswith((".run_sync", ".resume_sync")):
            raise WrongUse(
                f"{path}:{call.lineno} runs {name}(...) whenever the file is loaded: put that under "
                "'if __name__ == \"__main__\":'"
            )


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """The calls that a module makes when it is loaded, as far as they are plain to see."""
    for statement in body:
        if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
            yield from _inside(statement)
        elif isinstance(statement, ast.With | ast.For | ast.Try):
            yield from _calls(statement.body)


def _inside(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call):
        yield node
    if not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _inside(child)
