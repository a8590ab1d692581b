"""The calculator: exact against Python's own fractions, patient with notation, and bounded."""

import ast
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agentree.tools import ToolFailed, ToolRetry, calculator
from agentree.tools.builtin.calculator import MAX_DIGITS, calculate, number_text
from agentree.tools.builtin.notation import Unreadable, normalise


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17*23", "391"),
        ("(45+55)*3", "300"),
        ("0.1+0.2", "0.3"),
        ("10/4", "2.5"),
        ("10/5", "2"),
        ("1/3*3", "1"),
        ("-2**2", "-4"),
        ("2**3**2", "512"),
        ("2**-3", "0.125"),
        ("7//2 + 7%3", "4"),
        ("-7//2", "-4"),
        ("-7 % 3", "2"),
        ("1e16", "10000000000000000"),
        ("1e16+0.5", "10000000000000000.5"),
        ("2**100", "1267650600228229401496703205376"),
        ("1/3", "0.333333333333"),
        ("2/3", "0.666666666667"),
        ("1e-12/3", "3.33333333333e-13"),
        ("-1/8e9", "-1.25e-10"),
        ("1/1024", "0.0009765625"),
        ("100/7", "14.2857142857"),
        ("0.9999999999999", "1"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.41421356237"),
        ("sqrt(2)**2", "2"),
        ("27**(1/3)", "3"),
        ("0**0", "1"),
        ("1000*(1+0.07/12)**360", "8116.49747536"),
        ("1.0000001**1e3", "1.000100005"),
        ("(1/3)**700", "1.03543227066e-334"),
        ("(-1.5)**1001 / 1.5**1001", "-1"),
        ("2**-3000 * 2**3000", "1"),
        ("(-1)**1000001", "-1"),
        ("0**99999999999", "0"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234, -2)", "1200"),
        ("max(1, 5, 3) - min(4, 2)", "3"),
        ("floor(-2.5) + ceil(2.1) + abs(-3)", "3"),
        ("2*pi", "6.28318530718"),
        ("  1 +\n 2 ", "3"),
        ("--3", "3"),
        (".5 + 5.", "5.5"),
        ("1_000 + 1", "1001"),
    ],
)
def test_examples(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 x 3", "6"),
        ("2x3", "6"),
        ("12X(3+1)x2", "96"),
        ("2 × -3", "-6"),
        ("8 ÷ 4 − 1", "1"),
        ("2^10", "1024"),
        ("3² + 2³", "17"),
        ("1,234 + 1", "1235"),
        ("1,234,567.5 * 2", "2469135"),
        ("(1,000)", "1000"),
        ("max((1,000), 5)", "1000"),
        ("17*23 =", "391"),
        ("17*23 = ?", "391"),
        ("007 + 010", "17"),
        ("1 000", None),
        ("1,23", None),
        ("12,34", None),
        ("1,2345", None),
        ("1,234,56", None),
        ("max(1,234)", None),
        ("0x10", None),
        ("0b1", None),
        ("2e", None),
        ("2pi", None),
        ("2(3)", None),
        ("(2)(3)", None),
        ("5%", None),
        ("20% of 50", None),
        ("$5", None),
        ("1 < 2", None),
        ("x = 3", None),
        ("1; 2", None),
        ("1 if 1 else 2", None),
        ("[1]", None),
        ("(1, 2)", None),
        ("(1 , 2)", None),
        ("'a' * 3", None),
        ("1j", None),
        ("None", None),
        ("True + 1", None),
        ("sqrt", None),
        ("sqrt(1, 2)", None),
        ("max()", None),
        ("max(*1)", None),
        ("abs(**1)", None),
        ("pi(2)", None),
        ("__import__('os')", None),
        ("().__class__", None),
        ("lambda: 1", None),
        ("a.b", None),
        ("١ + ٢", None),
        ("1 + é", None),
        ("1 # no", None),
        ("1\\\n+1", None),
        ("\0", None),
        ("", None),
        ("   ", None),
        ("=", None),
        (")", None),
        ("()", None),
        ("1 +", None),
        ("1..2", None),
    ],
)
def test_notation_is_read_or_refused_with_a_reason(expression: str, result: str | None) -> None:
    if result is None:
        with pytest.raises(ToolRetry, match=r".{20}"):
            calculator(expression)
    else:
        assert calculator(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "1/0",
        "1//0",
        "1%0",
        "0**-1",
        "sqrt(-1)",
        "(-8)**(1/3)",
        "9**9**9",
        "10**1001",
        "1e400*1e400*1e400",
        "2**1e9",
        "(1/3)**9999",
        "1.5**9999",
        "1.0000001**1e30",
        "0.5**99999",
        "10**999.5 * 100",
        "10**-1200.5",
        "round(1, 1000000) * 9**9**9",
    ],
)
def test_no_result(expression: str) -> None:
    with pytest.raises((ToolFailed, ToolRetry)) as caught:
        calculator(expression)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "expression",
    [
        "1" * 1001,
        "-" * 100 + "1",
        "(" * 900 + "1",
        "1e401",
        "1e99999999999",
        "abs(" * 60 + "1" + ")" * 60,
        "2" + "**1" * 60,
        "1e" + "9" * 900,
        "round(1, 1e300)",
    ],
)
def test_size_and_depth_are_bounded(expression: str) -> None:
    with pytest.raises(ToolRetry):
        calculator(expression)


def test_long_sums_are_not_deep() -> None:
    assert calculator("+".join(["1"] * 500)) == "500"
    assert calculator("9" * MAX_DIGITS) == "9" * MAX_DIGITS


def test_the_schema_bounds_the_text() -> None:
    assert calculator.schema["required"] == ["expression"]
    assert calculator.pure
    with pytest.raises(ValueError, match="expression"):
        calculator.bind({"expression": "1" * 201})


# Against Python: the same expression with every literal a Fraction.

NUMBERS = st.integers(0, 9999).map(str) | st.decimals(0, 999, places=3).map(lambda d: f"{d:f}")
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner),
        st.builds("({})".format, inner),
        st.builds("-{}".format, inner),
        st.builds("({})**{}".format, inner, st.integers(-3, 4)),
        st.builds("max({}, {})".format, inner, inner),
        st.builds("abs({})".format, inner),
    ),
    max_leaves=8,
)


class _Fractions(ast.NodeTransformer):
    def __init__(self, text: str) -> None:
        self.text = text

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        literal = ast.get_source_segment(self.text, node)
        call = ast.Call(ast.Name("Fraction", ast.Load()), [ast.Constant(literal)], [])
        return ast.copy_location(call, node)


def reference(text: str) -> Fraction:
    tree = ast.fix_missing_locations(_Fractions(text).visit(ast.parse(text, mode="eval")))
    return Fraction(eval(compile(tree, "", "eval"), {"Fraction": Fraction, "max": max, "abs": abs}))


@given(EXPRESSIONS)
@example("2 - -3 ** 2")
def test_equal_to_python_on_fractions(text: str) -> None:
    text = " ".join(
        literal.lstrip("0") or "0" if literal.isdecimal() else literal for literal in text.split(" ")
    )
    try:
        expected = reference(text)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            calculate(text)
        return
    except SyntaxError:
        assume(False)
        raise
    try:
        value = calculate(text)
    except OverflowError:
        assert max(len(str(abs(expected.numerator))), len(str(expected.denominator))) > 300
    else:
        assert value == expected


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**12))
def test_text_is_the_value_to_twelve_digits(a: int, b: int) -> None:
    value = Fraction(a, b)
    text = number_text(value)
    error = abs(Fraction(Decimal(text)) - value)
    assert error * 2 * 10**11 <= abs(value)
    if value.denominator == 1:
        assert error == 0
    if value.denominator == 1 or abs(value) >= Fraction(1, 10**9):
        assert "e" not in text
    # whatever is shown can be calculated with again
    assert calculate(text) == Fraction(Decimal(text))


@given(st.integers(0, 10**12), st.integers(0, 10**6))
def test_thousands(a: int, b: int) -> None:
    assert calculate(f"{a:,} * {b:,}.25") == a * (b + Fraction(1, 4))


@given(st.text(alphabet="0123456789.,xX+-*/%^×÷()² eE=sqrtmaxpi_\n'#:", max_size=40) | st.text(max_size=30))
def test_any_text_has_a_result_or_a_reason(text: str) -> None:
    try:
        assert normalise(text).isascii()
    except Unreadable as e:
        assert str(e)
    try:
        assert calculator(text)
    except (ToolRetry, ToolFailed) as e:
        assert str(e)


@pytest.mark.parametrize("text", ["2²³", "min(1,000,2)", "max(1,234,567,8)"])
def test_what_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"unclear|may be one number"):
        calculate(text)


def test_digits_that_are_not_known_are_not_shown() -> None:
    with pytest.raises(OverflowError, match="rounded"):
        calculate("e**1000")
    assert number_text(calculate("2**400")) == str(2**400)
