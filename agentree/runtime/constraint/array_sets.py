"""Intersection and complement of shapes of arrays."""

from agentree.errors import ConstraintError
from agentree.runtime.constraint.sets import Sets
from agentree.runtime.constraint.shapes import FALSE, TRUE, Arrays, item, least, tidy


def both(sets: Sets, a: Arrays, b: Arrays) -> Arrays | None:
    """Intersection of two shapes; None if it is plainly void."""
    size = max(len(a.prefix), len(b.prefix))
    prefix = tuple(sets.both((item(a, i), item(b, i))) for i in range(size))
    contains = tuple(dict.fromkeys((*a.contains, *b.contains)))
    high = least(a.high, b.high)
    return tidy(
        Arrays(prefix, sets.both((a.rest, b.rest)), max(a.low, b.low), high, contains, a.unique or b.unique)
    )


def others(sets: Sets, a: Arrays) -> list[Arrays]:
    """Shapes of which an array that does not have this one has at least one.

    Raises ConstraintError where they can't be written down.
    """
    if a.unique:
        raise ConstraintError("'not' over 'uniqueItems' can't be enforced")
    out = [
        Arrays((TRUE,) * i + (sets.complement(e),), low=i + 1) for i, e in enumerate(a.prefix) if e != TRUE
    ]
    if a.rest != TRUE:
        if not a.prefix:
            out.append(Arrays(contains=((sets.complement(a.rest), 1, None),)))
        elif a.rest == FALSE:
            out.append(Arrays(low=len(a.prefix) + 1))
        else:
            raise ConstraintError("'not' over 'prefixItems' beside 'items' can't be enforced")
    if a.low:
        out.append(Arrays(high=a.low - 1))
    if a.high is not None:
        out.append(Arrays(low=a.high + 1))
    for number, low, high in a.contains:
        if low:
            out.append(
                Arrays(contains=((number, 0, low - 1),)) if low > 1 else Arrays(rest=sets.complement(number))
            )
        if high is not None:
            out.append(Arrays(contains=((number, high + 1, None),)))
    return [shape for shape in map(tidy, out) if shape is not None]
