"""Numbers on the command line, with what is wrong with those that can't be."""

import argparse
import math
from collections.abc import Callable


def speed(text: str) -> float:
    """A number above 0, or "max" for inf."""
    try:
        value = math.inf if text == "max" else float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number above 0, or max")
    return value


def seconds(text: str) -> float:
    """A span of time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of seconds")
    return value


def between(least: int, most: int) -> Callable[[str], int]:
    """Whole numbers of a range."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text[:9]) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: write a number from {least} to {most}")
        return int(text)

    return read
