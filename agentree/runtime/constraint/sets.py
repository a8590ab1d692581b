"""Sets of JSON values by number: the algebra of their names, which knows nothing of what is in them."""

import json
from collections.abc import Iterable
from typing import Any

from agentree.runtime.constraint.shapes import FALSE, TRUE

Key = tuple[Any, ...]
"""How a set is made: ("and", *numbers), ("or", *numbers), ("not", number), ("const", text), ..."""


class Sets:
    """Numbers of sets. The same set made in the same way has one number."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {("or",): FALSE, ("and",): TRUE}
        self.keys: list[Key] = [("or",), ("and",)]

    def number(self, key: Key) -> int:
        """The number of a set by how it is made."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return found

    def constant(self, value: object) -> int:
        """The set of one JSON value."""
        return self.number(("const", json.dumps(value, ensure_ascii=False)))

    def both(self, members: Iterable[int]) -> int:
        """Intersection."""
        flat: set[int] = set()
        for member in members:
            flat.update(self.parts(member))
        if FALSE in flat or any(self.excluded(m) in flat for m in flat):
            return FALSE
        if len(flat) == 1:
            return flat.pop()
        return self.number(("and", *sorted(flat)))

    def either(self, members: Iterable[int]) -> int:
        """Union."""
        flat: set[int] = set()
        for member in members:
            key = self.keys[member]
            flat.update(key[1:] if key[0] == "or" else (member,))
        if TRUE in flat or any(self.excluded(m) in flat for m in flat):
            return TRUE
        if len(flat) == 1:
            return flat.pop()
        return self.number(("or", *sorted(flat)))

    def complement(self, member: int) -> int:
        """Every other JSON value."""
        if member in (FALSE, TRUE):
            return FALSE + TRUE - member
        inner = self.excluded(member)
        return self.number(("not", member)) if inner is None else inner

    def excluded(self, member: int) -> int | None:
        """The set that this one is made as the complement of."""
        key = self.keys[member]
        return int(key[1]) if key[0] == "not" else None

    def parts(self, member: int) -> tuple[int, ...]:
        """The sets that this one is made as the intersection of; itself where it is made in another way."""
        key = self.keys[member]
        return key[1:] if key[0] == "and" else (member,)
