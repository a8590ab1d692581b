"""`agentree top`: pool, queue and tree of the runtimes that are open on this machine."""

import argparse
import json
import sys
import time
from typing import Any

from agentree.cli.report import DONE, FAILED, put, say
from agentree.cli.streams import is_terminal
from agentree.lm.monitor import running

Snapshots = list[dict[str, Any]]

INTERVAL = 1.0
"""Seconds between two looks."""


def top_command(arguments: argparse.Namespace) -> int:
    """Show what runs until Ctrl-C, or once. Fails where a process was named and has no open runtime."""
    if arguments.json:
        found = _look(arguments.pid)
        for snapshot in found:
            put(json.dumps(snapshot))
    elif arguments.once or not is_terminal(sys.stdout):
        from rich.console import Console

        found = _look(arguments.pid)
        console = Console(highlight=False)
        for line in _drawn(found, [], console, height=200):
            console.print(line, soft_wrap=True)
    else:
        return _follow(arguments.pid)
    if not found and arguments.pid is not None:
        say(f"error: process {arguments.pid} has no open runtime of this user")
        return FAILED
    return DONE


def _look(pid: int | None) -> Snapshots:
    return [snapshot | {"taken": time.time()} for snapshot in running(pid)]


def _follow(pid: int | None) -> int:
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(highlight=False)
    before: Snapshots = []
    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while True:
            now = _look(pid)
            live.update(Group(*_drawn(now, before, console, height=console.height - 1)), refresh=True)
            before = now
            time.sleep(INTERVAL)


def _drawn(
    now: list[dict[str, Any]], before: list[dict[str, Any]], console: Any, *, height: int
) -> list[Any]:
    from agentree.trace.console import glyphs_for
    from agentree.trace.top import all_lines

    return all_lines(
        now,
        before,
        clock=time.time(),
        width=max(console.width - 1, 40),
        height=height,
        glyphs=glyphs_for(console),
    )
