"""`agentree trace`: a trace file is shown again, stepped through, explained, or drawn as a picture."""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentree.cli.files import write_picture
from agentree.cli.keys import Keyboard, keyboard
from agentree.cli.report import DONE, FAILED, WrongUse, put, reason, say
from agentree.events import Event
from agentree.trace.jsonl import Fault, scan_trace
from agentree.trace.replay import Player

if TYPE_CHECKING:
    from agentree.trace.console import ConsoleView
    from agentree.trace.line import Line
    from agentree.trace.state import Picture

FRAME = 1 / 10
"""Seconds between two drawings."""
WIDTH, ROWS = 100, 60
"""Cells of a picture in a line, and the most rows of its tree, where they are not said."""
_FAULTS = 5
"""Lines that are no events and that are named one by one."""
_HELP = "space pause  Enter next  b back  +- speed  f end  q quit"


def trace_command(arguments: argparse.Namespace) -> int:
    """Show a trace file. What is readable is shown; lines that are not are named, and fail the command."""
    if arguments.svg is None:
        _refuse_of_picture(arguments)
    events, faults = _read(Path(arguments.file))
    if arguments.svg is not None:
        _draw(events, arguments)
    else:
        seen = arguments.explain or _show(events, arguments)
        if seen:
            _explain(events)
    for fault in faults[:_FAULTS]:
        say(f"error: {arguments.file!r}, {fault}")
    if len(faults) > _FAULTS:
        say(f"error: {arguments.file!r}, {len(faults) - _FAULTS} more lines that are no events")
    return FAILED if faults else DONE


def _refuse_of_picture(arguments: argparse.Namespace) -> None:
    for option in ("at", "width", "rows"):
        if getattr(arguments, option) is not None:
            raise WrongUse(
                f"--{option} belongs to the picture that --svg OUT writes: add --svg OUT, or leave it out"
            )


def _read(path: Path) -> tuple[list[Event], list[Fault]]:
    events: list[Event] = []
    faults: list[Fault] = []
    try:
        for found in scan_trace(path):
            if isinstance(found, Fault):
                faults.append(found)
            else:
                events.append(found)
    except OSError as error:
        raise WrongUse(f"can't read the trace: {reason(error)}") from error
    if not events:
        why = f": {faults[0]}" if faults else ": it is empty"
        raise WrongUse(f"there is no event in {str(path)!r}{why}")
    return events, faults


def _explain(events: list[Event]) -> None:
    from agentree.trace.explanation import explain

    put("\n" + (explain(events) or "the file has no run: there is no plan to explain"))


def _draw(events: list[Event], arguments: argparse.Namespace) -> None:
    from agentree.trace.svg import svg

    if arguments.at is not None:
        end = events[0].time + arguments.at
        events = [event for event in events if event.time <= end] or events[:1]
    write_picture(arguments.svg, svg(events, width=arguments.width or WIDTH, rows=arguments.rows or ROWS))


def _show(events: list[Event], arguments: argparse.Namespace) -> bool:
    """Show them; False if the viewer had seen enough."""
    if not sys.stdout.isatty():
        _print(events, stepping=arguments.step)
        return True
    with keyboard() as keys:
        if arguments.step and keys is None:
            _print(events, stepping=True)
            return True
        return _play(Player(events, speed=arguments.speed, paused=arguments.step), keys)


def _print(events: list[Event], *, stepping: bool) -> None:
    """Plain lines; when stepping, an event for each line of stdin, until it ends."""
    from agentree.trace.lines import LineView
    from agentree.trace.replay import described
    from agentree.trace.state import Picture

    if stepping:
        picture = Picture()
        for event in events:
            if not sys.stdin.readline():
                break
            picture.feed((event,))
            put(described(event, picture))
        return
    view = LineView(sys.stdout)
    view.feed(events)
    view.close()


def _play(player: Player, keys: Keyboard | None) -> bool:
    """The live console at the player's pace; whether it was not quit.

    Stays at the end for more keys only where it was stepped to.
    """
    from rich.console import Console

    from agentree.trace.console import ConsoleView

    view = ConsoleView(
        Console(highlight=False),
        clock=lambda: player.at,
        output=True,
        footer=lambda width: _footer(player, view.picture, width) if keys is not None else [],
    )
    drawn = time.monotonic()
    try:
        while not player.over or player.paused:
            view.tick()
            key = _wait(keys)
            now = time.monotonic()
            elapsed, drawn = now - drawn, now
            if key == "q":
                return player.over
            if not _turn(player, view, key):
                view.feed(player.advance(elapsed))
    finally:
        view.close()
    return True


def _wait(keys: Keyboard | None) -> str:
    if keys is not None:
        return keys.key(FRAME)
    time.sleep(FRAME)
    return ""


def _turn(player: Player, view: "ConsoleView", key: str) -> bool:
    """Do what a key asks for; whether it moved the replay by itself."""
    match key:
        case " ":
            player.paused = not player.paused
        case "\n" | "n" | "right":
            player.paused = True
            view.feed(player.next())
            return True
        case "b" | "p" | "left":
            player.paused = True
            view.show_again(player.back())
            return True
        case "+" | "=":
            player.speed = min(player.speed * 2, 1024.0)
        case "-":
            player.speed = max(player.speed / 2, 1 / 1024)
        case "f":
            player.speed, player.paused = math.inf, False
        case _:
            pass
    return False


def _footer(player: Player, picture: "Picture", width: int) -> "list[Line]":
    from agentree.trace.glyphs import clip
    from agentree.trace.line import Line
    from agentree.trace.replay import described

    state = "paused" if player.paused else f"x{player.speed:g}"
    where = f"{player.given}/{len(player.events)}  {player.seconds:.1f} s  {state}"
    lines = [Line(), Line(clip(f"{where}  {_HELP}", width), "reverse")]
    if player.paused and player.last is not None:
        lines.insert(1, Line(clip(described(player.last, picture), width), "bold"))
    return lines
