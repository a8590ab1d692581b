"""Docstrings of every style, well and badly laid out."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentree.tools.docstring import parse_docstring

EXPECTED = {"city": "Name of the city.", "days": "How many: 1 to 7, counted from today."}

GOOGLE = """Get the forecast.

    Args:
        city (str): Name of the city.
        days (int, optional): How many: 1 to 7,
            counted from today.

    Returns:
        str: The forecast.

    Raises:
        ValueError: if days: is wrong.
    """
GOOGLE_TIGHT = """Get the forecast.
    Args:
        city: Name of the city.
        days: How many: 1 to 7,
          counted from today.
    Returns: The forecast.
    """
GOOGLE_FLAT = """Get the forecast.

Args:
city: Name of the city.
days (Annotated[int, Field(ge=1, le=7)]): How many: 1 to 7, counted from today.

Example:
    forecast("Oslo")
"""
NUMPY = """Get the forecast.

    Parameters
    ----------
    city : str
        Name of the city.
    days : int, default: 3
        How many: 1 to 7,
        counted from today.

    Returns
    -------
    str
        The forecast.
    """
SPHINX = """Get the forecast.

    :param city: Name of the city.
    :type city: str
    :param int days: How many: 1 to 7,
        counted from today.
    :returns: The forecast.
    :rtype: str
    :raises ValueError: if days is wrong.
    """
SPHINX_TIGHT = """Get the forecast.
    :param city: Name of the city.
    :param days: How many: 1 to 7,
    counted from today.
    """


@pytest.mark.parametrize("doc", [GOOGLE, GOOGLE_TIGHT, GOOGLE_FLAT, NUMPY, SPHINX, SPHINX_TIGHT])
def test_each_style_gives_the_same(doc: str) -> None:
    parsed = parse_docstring(doc)
    assert parsed.parameters == EXPECTED
    assert parsed.description in ("Get the forecast.", "Get the forecast. Returns: The forecast.")
    assert "city" not in parsed.description
    assert "Args" not in parsed.description and "Parameters" not in parsed.description


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX, SPHINX_TIGHT])
def test_results_and_errors_are_not_described(doc: str) -> None:
    assert parse_docstring(doc).description == "Get the forecast."


def test_numpy_names_that_share_a_text() -> None:
    doc = """Add.

    Parameters
    ----------
    x, y : int
        The numbers.
    *rest : int
        More of them.
    unit
        No type here.
    """
    assert parse_docstring(doc).parameters == {
        "x": "The numbers.",
        "y": "The numbers.",
        "rest": "More of them.",
        "unit": "No type here.",
    }


def test_starred_names() -> None:
    doc = "Join.\n\nArgs:\n    *paths: The paths.\n    \\*\\*options: Set aside.\n    sep: Between.\n"
    assert parse_docstring(doc).parameters == {
        "paths": "The paths.",
        "options": "Set aside.",
        "sep": "Between.",
    }


def test_a_description_of_several_paragraphs_and_lists() -> None:
    doc = """Look up.

    Args:
        query: What to look for.

            Written as:
            - words
            - "a phrase",
              quoted
        limit: How many.

    It is slow.
    """
    parsed = parse_docstring(doc)
    assert parsed.parameters["query"] == 'What to look for.\nWritten as:\n- words\n- "a phrase", quoted'
    assert parsed.parameters["limit"] == "How many."
    assert parsed.description == "Look up.\nIt is slow."


def test_prose_with_colons_stays_prose() -> None:
    doc = "Divide: a by b.\n\nNote: b is not 0. See also: `mod`.\nThe result is exact."
    parsed = parse_docstring(doc)
    assert parsed.description == "Divide: a by b.\nNote: b is not 0. See also: `mod`. The result is exact."
    assert parsed.parameters == {}


def test_sections_of_mixed_styles() -> None:
    doc = """Mix.

    Keyword Args:
        a: One.

    Other Parameters
    ----------------
    b : int
        Two.

    :param c: Three.
    """
    assert parse_docstring(doc).parameters == {"a": "One.", "b": "Two.", "c": "Three."}


@pytest.mark.parametrize(
    "doc", [None, "", "   \n ", "Args:", "Parameters\n-----", ":param x:", "Args:\n\n\n"]
)
def test_empty_docs(doc: str | None) -> None:
    assert parse_docstring(doc).parameters == {}


LINES = st.lists(
    st.sampled_from(
        [
            "",
            "Args:",
            "Parameters",
            "----------",
            "Returns:",
            "x: y",
            "*x (a(b): c",
            "x, y : int",
            ":param x: y",
            "- item",
            "prose: here",
            ":type x: int",
            "@param z: t",
            "Raises",
            "(",
            ":",
        ]
    ).flatmap(lambda text: st.sampled_from(["", "  ", "    ", "\t"]).map(lambda pad: pad + text)),
    max_size=14,
)


@given(LINES)
def test_any_text_is_parsed(lines: list[str]) -> None:
    parsed = parse_docstring("\n".join(lines))
    assert all(name.isidentifier() and text.strip() == text != "" for name, text in parsed.parameters.items())


WORDS = st.lists(st.sampled_from(["big", "value:", "of", "(x)", "1:", "it's"]), min_size=1, max_size=12)
NAMES = st.lists(st.sampled_from(["a", "b_c", "_d", "e1", "json"]), unique=True, min_size=1)


def fill(text: str, subsequent_indent: str = "") -> str:
    return textwrap.fill(text, 12, subsequent_indent=subsequent_indent, break_long_words=False)


@given(NAMES, st.data())
def test_texts_survive_each_style(names: list[str], data: st.DataObject) -> None:
    texts = {name: " ".join(data.draw(WORDS)) for name in names}
    google = "".join(f"    {n}: " + fill(t, subsequent_indent="        ") + "\n" for n, t in texts.items())
    numpy = "".join(f"{n} : str\n" + textwrap.indent(fill(t), "    ") + "\n" for n, t in texts.items())
    sphinx = "".join(f":param {n}: " + fill(t, subsequent_indent="  ") + "\n" for n, t in texts.items())
    for doc in (f"Do.\n\nArgs:\n{google}", f"Do.\n\nParameters\n----------\n{numpy}", f"Do.\n\n{sphinx}"):
        parsed = parse_docstring(doc)
        assert parsed.parameters == texts
        assert parsed.description == "Do."
