"""Arithmetic for models: exact, bounded, and read from text by `ast` without ever running it.

All values are fractions, so 0.1 + 0.2 is 0.3 and (1/3)*3 is 1. Roots, fractional powers and fractions that
get too long to keep are rounded, to 40 digits; integers never are.
"""

import ast
import math
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, InvalidOperation, Overflow, Underflow
from fractions import Fraction
from typing import Annotated, Final

from pydantic import Field

from agentree.tools.builtin.notation import Unreadable, normalise
from agentree.tools.calls import ToolFailed, ToolRetry
from agentree.tools.decorator import tool

MAX_DIGITS: Final = 1000
"""Longest integer at any point of a calculation, and longest numerator or denominator, in digits."""
ROUNDED_DIGITS: Final = 30
"""Most digits before the point of a result that is not exact."""
MAX_DEPTH: Final = 50
"""Deepest nesting of parentheses, signs and powers."""
SIGNIFICANT: Final = 12
"""Digits that a result which is no integer is rounded to."""

_MAX_BITS = math.ceil(MAX_DIGITS * math.log2(10))
_MAX_EXPONENT = 10**20
_TRAPS = [InvalidOperation, Overflow, Underflow]
_TOO_LARGE = f"a number has more than {MAX_DIGITS} digits"
_CONSTANTS = {
    "pi": Fraction("3.141592653589793238462643383279502884197"),
    "e": Fraction("2.718281828459045235360287471352662497757"),
}


@tool(pure=True)
def calculator(expression: Annotated[str, Field(min_length=1, max_length=200)]) -> str:
    """Calculate an arithmetic expression, exactly.

    Args:
        expression: Numbers with + - * / // % ** and parentheses, such as "17*23" or "(45+55)/4".
            Also sqrt, abs, round, floor, ceil, min and max.
    """
    try:
        return number_text(calculate(expression))
    except Unreadable as e:
        percent = " (% is the remainder: 20 percent is 20/100)" if "%" in expression else ""
        raise ToolRetry(f"{expression[:80]!r} can't be read: {e}{percent}") from None
    except ArithmeticError as e:
        raise ToolFailed(f"{expression[:80]!r} has no result: {e}") from None


def calculate(expression: str) -> Fraction:
    """The exact value of an expression.

    Raises:
        Unreadable: the text is no arithmetic, or too long or too deep.
        ArithmeticError: there is no value (division by zero), or it is too large.
    """
    text = normalise(expression)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unreadable("it is no complete expression: check operators and parentheses") from None
    return _Evaluator(text).value(tree.body, 0)


def number_text(value: Fraction) -> str:
    """An integer in full; anything else rounded to 12 significant digits, its integer part always in full."""
    if value.denominator == 1:
        return str(value.numerator)
    whole = abs(value) // 1
    if abs(value) < Fraction(1, 10**9):
        return _scientific(value)
    digits = len(str(whole)) if whole else -_leading_zeros(value)
    places = max(1, SIGNIFICANT - digits)
    scaled = round(abs(value) * 10**places)
    text = str(scaled).rjust(places + 1, "0")
    fraction = text[-places:].rstrip("0")
    return ("-" if value < 0 else "") + text[:-places] + ("." + fraction if fraction else "")


def _leading_zeros(value: Fraction) -> int:
    """How many zeros follow the point of a value below 1."""
    count = 0
    while abs(value) * 10 ** (count + 1) < 1:
        count += 1
    return count


def _scientific(value: Fraction) -> str:
    rounded = Context(prec=SIGNIFICANT).divide(Decimal(value.numerator), Decimal(value.denominator))
    sign, digits, exponent = rounded.normalize().as_tuple()
    mantissa = "".join(map(str, digits))
    point = f"{mantissa[0]}.{mantissa[1:]}" if mantissa[1:] else mantissa
    return f"{'-' * sign}{point}e{int(exponent) + len(mantissa) - 1}"


class _Evaluator:
    """Walks the syntax tree of `text`, one line of ASCII. Only what is listed here has a meaning."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise Unreadable(f"it is nested more than {MAX_DEPTH} deep: calculate a part of it first")
        chain: list[ast.BinOp] = []  # a + b + c + ... leans to the left: long, but not deep
        while isinstance(node, ast.BinOp):
            chain.append(node)
            node = node.left
        result = self._operand(node, depth)
        for step in reversed(chain):
            result = _bounded(_binary(step.op, result, self.value(step.right, depth + 1)))
        return result

    def _operand(self, node: ast.expr, depth: int) -> Fraction:
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return _bounded(Fraction(self._text[node.col_offset : node.end_col_offset]))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                value = self.value(node.operand, depth + 1)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.Name():
                if node.id in _FUNCTIONS:
                    raise Unreadable(f"{node.id!r} is a function: write {node.id}(...)")
                if node.id not in _CONSTANTS:
                    raise Unreadable(f"{node.id!r} is unknown: write numbers")
                return _CONSTANTS[node.id]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if not any(
                isinstance(a, ast.Starred) for a in arguments
            ):
                if name not in _FUNCTIONS:
                    raise Unreadable(f"{name!r} is no function here: there are {', '.join(_FUNCTIONS)}")
                function, least, most = _FUNCTIONS[name]
                if not least <= len(arguments) <= most:
                    count = f"{least}" if least == most else f"{least} to {most}"
                    raise Unreadable(f"{name} takes {count} numbers, not {len(arguments)}")
                return _bounded(function(*[self.value(a, depth + 1) for a in arguments]))
            case ast.Tuple():
                raise Unreadable(
                    "a comma stands outside of a function: write one expression, numbers without commas"
                )
            case _:
                part = self._text[node.col_offset : node.end_col_offset]
                raise Unreadable(f"{part[:40]!r} is no arithmetic")


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) <= _MAX_BITS:
        return value
    if value.denominator == 1:
        raise OverflowError(_TOO_LARGE)
    return _rounded(lambda context: _decimal(value, context))


def _rounded(compute: Callable[[Context], Decimal]) -> Fraction:
    """A value that is computed to 40 digits.

    Raises OverflowError towards zero, and past 10**ROUNDED_DIGITS: its digits would not all be known.
    """
    try:
        value = Fraction(compute(Context(prec=40, Emin=-MAX_DIGITS, Emax=MAX_DIGITS, traps=_TRAPS)))
    except DecimalException:
        raise OverflowError(_TOO_LARGE) from None
    if abs(value) >= 10**ROUNDED_DIGITS:
        raise OverflowError(f"the result is rounded and has more than {ROUNDED_DIGITS} digits: too large")
    return value


def _decimal(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _binary(op: ast.operator, a: Fraction, b: Fraction) -> Fraction:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() | ast.FloorDiv() | ast.Mod():
            if not b:
                raise ZeroDivisionError("division by zero")
            return (
                a / b
                if isinstance(op, ast.Div)
                else Fraction(a // b)
                if isinstance(op, ast.FloorDiv)
                else a % b
            )
        case ast.Pow():
            return _power(a, b)
        case _:
            raise Unreadable("only + - * / // % and ** are known")


def _power(a: Fraction, b: Fraction) -> Fraction:
    if not a and b < 0:
        raise ZeroDivisionError("zero to a negative power divides by zero")
    if b.denominator == 1:
        if abs(a) in (0, 1):
            return a ** (b.numerator % 2 if abs(a) == 1 else b.numerator)
        # a lower bound of the result's bits, so that nothing that would fit is refused
        bits = max(abs(a.numerator).bit_length(), a.denominator.bit_length()) - 1
        if bits * abs(b.numerator) <= _MAX_BITS:
            return a**b.numerator
        if a.denominator == 1 and b > 0:
            raise OverflowError(_TOO_LARGE)
    elif a < 0:
        raise ArithmeticError("a negative number has no real root of this kind")
    if b == Fraction(1, 2):
        return _sqrt(a)
    if abs(b) > _MAX_EXPONENT:
        raise OverflowError(f"an exponent beyond {_MAX_EXPONENT:,} leaves no exact digit")
    return _rounded(lambda context: context.power(_decimal(a, context), _decimal(b, context)))


def _sqrt(value: Fraction) -> Fraction:
    if value < 0:
        raise ArithmeticError("a negative number has no real square root")
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return (
        exact if exact * exact == value else _rounded(lambda context: context.sqrt(_decimal(value, context)))
    )


def _round(value: Fraction, places: Fraction = Fraction(0)) -> Fraction:
    """Half to even, as Python's own `round` on exact values."""
    if places.denominator != 1 or abs(places) > MAX_DIGITS:
        raise Unreadable(f"round takes a number of places up to {MAX_DIGITS}")
    return Fraction(round(value, int(places)))


def _abs(value: Fraction) -> Fraction:
    return abs(value)


def _floor(value: Fraction) -> Fraction:
    return Fraction(math.floor(value))


def _ceil(value: Fraction) -> Fraction:
    return Fraction(math.ceil(value))


def _min(*values: Fraction) -> Fraction:
    return min(values)


def _max(*values: Fraction) -> Fraction:
    return max(values)


_FUNCTIONS: dict[str, tuple[Callable[..., Fraction], int, int]] = {
    "sqrt": (_sqrt, 1, 1),
    "abs": (_abs, 1, 1),
    "round": (_round, 1, 2),
    "floor": (_floor, 1, 1),
    "ceil": (_ceil, 1, 1),
    "min": (_min, 1, 100),
    "max": (_max, 1, 100),
}
