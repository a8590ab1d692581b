"""What the workloads say: prompts, tools, letters and tickets, each a pure function of its number."""

import json
import random
import tomllib
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

_SAID: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

PLAN_PROBLEM: str = _SAID["plan"]["problem"]
PLAN_WAYS: tuple[str, ...] = tuple(_SAID["plan"]["ways"])
TALKS: list[list[str]] = [talk["said"] for talk in _SAID["talks"]]
LONG_ASK: str = _SAID["free"]["long_ask"]
CLASSES = ("A", "B", "C", "D")


def _object(**properties: object) -> Schema:
    """The schema of a closed object, all of whose properties are required, in order."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _one_of(*options: str) -> Schema:
    return {"type": "string", "enum": list(options)}


def _text(longest: int) -> Schema:
    return {"type": "string", "maxLength": longest}


# ----------------------------------------------------------------------------------- W2: agents with tools

_TOOLS: dict[str, str] = _SAID["agent"]["tools"]
AGENT_SYSTEM: str = _SAID["agent"]["system"].replace(
    "<tools>", "\n".join(f"{name}: {what}" for name, what in _TOOLS.items())
)
AGENT_CASES: tuple[str, ...] = tuple(_SAID["agent"]["cases"])
AGENT_SCHEMA = _object(
    tool=_one_of(*_TOOLS),
    input=_object(subject=_text(20), urgency=_one_of("today", "week", "month"), reason=_text(40)),
    last={"type": "boolean"},
)


def finding(agent: int, turn: int) -> str:
    """What a tool answers in a turn of an agent."""
    number, day = 4100 + 97 * agent + 13 * turn, 2 + (5 * agent + 3 * turn) % 26
    kinds: list[str] = _SAID["agent"]["findings"]
    return kinds[(agent + turn) % len(kinds)].format(
        n=number,
        other=number + 8,
        day=day,
        next=day + 1,
        few=1 + (agent + turn) % 3,
        days=2 + turn,
        year=10 + agent,
        rent=640 + 11 * agent,
        heating=80 + turn,
        clause=3 + turn,
        heat=310 + 7 * agent,
        before=295 + 9 * turn,
        water=14 + agent,
        last=9 + turn,
    )


# --------------------------------------------------------------------------------- W3: letters to records

_LETTER: dict[str, Any] = _SAID["letter"]
_LANGUAGES = ("English", "French", "German", "Polish")
RECORD_SCHEMA = _object(
    name_of_the_member=_text(30),
    town_of_the_branch_library=_text(20),
    number_of_the_library_card={"type": "string", "pattern": "^LC-[0-9]{5}$"},
    date_of_the_return={"type": "string", "pattern": "^2026-[01][0-9]-[0-3][0-9]$"},
    number_of_borrowed_books={"type": "integer", "minimum": 0, "maximum": 999},
    language_of_the_books=_one_of(*_LANGUAGES),
    wants_to_be_called_back={"type": "boolean"},
    mood_of_the_letter=_one_of(*_LETTER["moods"]),
)


def letter(i: int) -> tuple[str, dict[str, object]]:
    """A letter and the record that is in it."""
    name = f"{_LETTER['first'][i % 9]} {_LETTER['last'][(3 * i + i // 9) % 10]}"
    town, card, books = _LETTER["towns"][(4 * i + 1) % 9], f"LC-{31007 + 911 * i}", 2 + 5 * i % 23
    month, day, language = 1 + 7 * i % 12, 1 + 11 * i % 28, _LANGUAGES[(3 * i + 2) % 4]
    call, mood = i % 3 == 1, list(_LETTER["moods"])[(2 * i + i // 4) % 3]
    text = _LETTER["text"].format(
        name=name,
        town=town,
        card=card,
        books=books,
        day=day,
        month=_LETTER["months"][month - 1],
        language=language,
        call=_LETTER["call"][call],
        mood=_LETTER["moods"][mood],
    )
    values = (name, town, card, f"2026-{month:02d}-{day:02d}", books, language, call, mood)
    return text, dict(zip(RECORD_SCHEMA["properties"], values, strict=True))


def _record_system() -> str:
    text, record = letter(20)
    said: str = _LETTER["system"]
    for place, filled in (
        ("<keys>", ", ".join(RECORD_SCHEMA["properties"])),
        ("<letter>", text),
        ("<record>", json.dumps(record)),
    ):
        said = said.replace(place, filled)
    return said


RECORD_SYSTEM = _record_system()

# ----------------------------------------------------------------------------------- W4: one of four letters

_TICKET: dict[str, Any] = _SAID["ticket"]


def ticket(i: int) -> tuple[str, str]:
    """A short message and its class. 0 to 63 are asked, those from 64 on are the examples."""
    kind = CLASSES[(i + i // 4 + i // 16) % 4]
    asked: str = _TICKET["classes"][kind][1 + (i // 3 + i // 4) % 3]
    text = asked.format(n=3 + 29 * i % 88, d=_TICKET["days"][(5 * i + i // 7) % 7])
    return f"Number {2100 + 7 * i} from the {('north', 'south', 'west')[i % 3]} hall: {text}", kind


def _class_system() -> str:
    said: str = _TICKET["system"]
    classes = "\n".join(f"{kind}: {words[0]}" for kind, words in _TICKET["classes"].items())
    examples = "\n\n".join("{}\nClass: {}".format(*ticket(i)) for i in range(64, 92))
    return said.replace("<classes>", classes).replace("<examples>", examples)


CLASS_SYSTEM = _class_system()

# ------------------------------------------------------------------------------------------ W5: just words

_WORDS: list[str] = _SAID["free"]["words"].split()


def words(run: str, i: int) -> str:
    """270 words that no other run or number has in this order."""
    draw = random.Random(f"{run} {i}")
    return " ".join(draw.choice(_WORDS) for _ in range(270))
