"""Finds the program in a user's Python file."""

import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from agentree.cli.guards import refuse_running
from agentree.cli.report import WrongUse, place

if TYPE_CHECKING:
    from agentree.graph import Program
    from agentree.lm import Runtime

    AnyProgram = Program[Any, Any, Any]
    Function = Callable[[Runtime, str], Awaitable[object]]
    Entry = AnyProgram | Function

_USUAL_NAMES = ("main", "agent", "program")
"""Taken first when a file has several candidates and none is named."""


def split_target(target: str) -> tuple[Path, str]:
    """File and name of "agents.py:research"; the name is "" where none is given or a file is called so."""
    path, colon, name = target.rpartition(":")
    if colon and name.isidentifier() and not Path(target).exists():
        return Path(path), name
    return Path(target), ""


@contextmanager
def on_path(folder: Path) -> Generator[None]:
    """The folder first on `sys.path`, as `python FILE` has it, while the block runs."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def load_file(path: Path) -> ModuleType:
    """Import a file by its path. Raises WrongUse, naming file and line, where it can't be loaded."""
    if not path.exists():
        raise WrongUse(f"there is no file {str(path)!r}")
    if path.is_dir():
        raise WrongUse(f"{str(path)!r} is a folder: name a Python file in it")
    name = f"agentree_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WrongUse(f"{str(path)!r} is no Python file: its name must end in .py")
    refuse_running(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise WrongUse(f"{place(error, path)}: {type(error).__name__}: {what}") from error
    return module


def _is_program(value: object) -> bool:
    graph = sys.modules.get("agentree.graph")
    return graph is not None and isinstance(value, graph.Program)


def _is_graph(value: object) -> bool:
    graph = sys.modules.get("agentree.graph")
    return graph is not None and isinstance(value, graph.Graph)


def _is_function(value: object, module: ModuleType) -> bool:
    """An async function of this module that can be called with a runtime and a text."""
    return (
        inspect.iscoroutinefunction(value)
        and getattr(value, "__module__", None) == module.__name__
        and _takes_two(value)
    )


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None, "")
    except TypeError:
        return False
    return True


def candidates(module: ModuleType) -> dict[str, "Entry"]:
    """The programs of a module, and its async functions of (lm, text), by name; each once."""
    found: dict[str, Entry] = {}
    for name, value in vars(module).items():
        usable = not name.startswith("_") and (_is_program(value) or _is_function(value, module))
        if usable and not any(value is other for other in found.values()):
            found[name] = value
    return found


def load_program(target: str) -> "AnyProgram":
    """The compiled graph that "FILE[:program]" names. Raises WrongUse where that is a function or unclear."""
    path, name = split_target(target)
    module = load_file(path)
    found = candidates(module)
    programs = {key: value for key, value in found.items() if _is_program(value)}
    if not programs and found and not name:
        raise WrongUse(f"{str(path)!r} has only functions ({_list(found)}): only compiled graphs have a plan")
    entry = _find(module, path, name, found if name else programs)
    if not _is_program(entry):
        raise WrongUse(f"{target!r} is a function: only compiled graphs have a plan")
    return cast("AnyProgram", entry)


def find_entry(module: ModuleType, path: Path, name: str) -> "Entry":
    """The program to run: the one named, the only one, or the one with a usual name.

    Raises WrongUse, listing what there is, where that is not exactly one.
    """
    return _find(module, path, name, candidates(module))


def _find(module: ModuleType, path: Path, name: str, found: "dict[str, Entry]") -> "Entry":
    if name:
        return _named(module, path, name, found)
    programs = [key for key, value in found.items() if _is_program(value)]
    for names in (list(found), [usual for usual in _USUAL_NAMES if usual in found][:1], programs):
        if len(names) == 1:
            return found[names[0]]
    if not found:
        graphs = [key for key, value in vars(module).items() if _is_graph(value)]
        compile_it = f"write program = {graphs[-1]}.compile()" if graphs else "compile a graph in it"
        raise WrongUse(f"{str(path)!r} has no program: {compile_it}, or write an async def main(lm, text)")
    example = f"{path}:{next(iter(found))}"
    raise WrongUse(f"{str(path)!r} has several programs ({_list(found)}): say which one, as in {example}")


def _named(module: ModuleType, path: Path, name: str, found: "dict[str, Entry]") -> "Entry":
    value = getattr(module, name, None)
    if value is None:
        there = f"it has {_list(found)}" if found else "it has no program"
        raise WrongUse(f"{str(path)!r} has no {name!r}: {there}")
    if _is_program(value) or (inspect.iscoroutinefunction(value) and _takes_two(value)):
        return cast("Entry", value)
    raise WrongUse(f"{name!r} of {str(path)!r} is neither a program nor an async function of (lm, text)")


def _list(found: "dict[str, Entry]") -> str:
    return ", ".join(found)


def load_entry(target: str) -> "Entry":
    """The program that "FILE[:program]" names."""
    path, name = split_target(target)
    return find_entry(load_file(path), path, name)


def as_program(entry: "Entry") -> "AnyProgram | None":
    """The entry if it is a compiled program, None if it is a function."""
    return cast("AnyProgram", entry) if _is_program(entry) else None
