"""Layers import one way only, and `import agentree` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "agentree"
LAYERS = (
    ("agentree.errors",),
    ("agentree.events",),
    ("agentree.messages",),
    ("agentree.chat",),
    ("agentree.json_types",),
    ("agentree.tools",),
    ("agentree.runtime.constraint",),
    ("agentree.runtime.cache",),
    ("agentree.runtime.native",),
    ("agentree.runtime.model",),
    ("agentree.runtime",),
    ("agentree.lm",),
    ("agentree.graph",),
    ("agentree.testing",),
    ("agentree.trace",),
    ("agentree.cli", "agentree.__main__"),
)
HEAVY = ("torch", "transformers", "networkx", "httpx", "rich", "jinja2", "tokenizers")


def layer_of(module: str) -> int:
    """Index of the most specific layer that holds the module."""
    found = [
        (len(name), i)
        for i, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(name + ".")
    ]
    if not found:
        raise LookupError(f"{module!r} belongs to no layer: add it to LAYERS")
    return max(found)[1]


def modules() -> list[tuple[str, Path]]:
    """Every module of the package but its public face."""
    found: list[tuple[str, Path]] = []
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        if name != "agentree":
            found.append((name, path))
    return found


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports anywhere, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            for alias in node.names:
                inner = ROOT.parent.joinpath(*base.split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                found.add(f"{base}.{alias.name}" if is_module else base)
    return {name for name in found if name.startswith("agentree.")}


@pytest.mark.parametrize(
    ("name", "path"), modules(), ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_imports_point_down(name: str, path: Path) -> None:
    for imported in imports(path):
        assert layer_of(imported) <= layer_of(name), f"{name} imports {imported}, which lies above it"


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_light() -> None:
    code = f"import agentree, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run_python(code) == "[]"


def test_graph_and_tools_need_no_torch() -> None:
    code = (
        "import sys, agentree; agentree.Graph, agentree.tool, agentree.Runtime, agentree.compile_constraint;"
        "print([m for m in ('torch', 'transformers', 'networkx', 'httpx') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_a_runtime_is_named_without_numpy_and_automata() -> None:
    code = (
        "import sys; from agentree import Runtime, user, Choice;"
        "print([m for m in ('numpy', 'agentree.runtime.constraint.masks', 'jinja2') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_public_names_resolve_and_are_sorted() -> None:
    import agentree

    assert list(agentree.__all__) == sorted(set(agentree.__all__))
    for name in agentree.__all__:
        assert getattr(agentree, name) is not None
        assert name in dir(agentree)
    with pytest.raises(AttributeError, match="'nothing_here'"):
        getattr(agentree, "nothing_here")  # noqa: B009
