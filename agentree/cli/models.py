"""`agentree models`: what is known by name, what is here, and how it gets here. Needs no torch."""

import argparse
from pathlib import Path

from agentree.cli.report import DONE, put, say
from agentree.cli.watching import view, watching
from agentree.errors import ModelError
from agentree.events import Bus, ModelLoading
from agentree.runtime.model import store
from agentree.runtime.model.catalog import CATALOG, DEFAULT, Entry
from agentree.runtime.model.fetch import fetch, folder_of
from agentree.runtime.model.folder import resolve
from agentree.runtime.model.progress import STAGES, Step


def _state(entry: Entry) -> str:
    folder = folder_of(entry)
    if not folder.exists():
        return f"not here: {entry.wheel_size / 1e6:.0f} MB to fetch"
    return "damaged" if store.quick_check(folder) else "here"


def _converted() -> list[Path]:
    """Folders of the models that were converted from files."""
    known = {folder_of(entry) for entry in CATALOG.values()}
    folders = sorted(store.models().iterdir()) if store.models().is_dir() else []
    return [folder for folder in folders if folder not in known and store.is_current(folder)]


def list_command(_arguments: argparse.Namespace) -> int:
    """Print the catalogue, and the models that were converted from files."""
    width = max(map(len, CATALOG))
    for entry in CATALOG.values():
        default = " (default)" if entry.name == DEFAULT else ""
        put(f"{entry.name:<{width}}  {_state(entry)}{default}")
        put(f"{'':<{width}}  {entry.summary}; {entry.license}")
    for folder in _converted():
        state = "damaged" if store.quick_check(folder) else "here"
        put(f"{folder.name:<{width}}  {state}, converted from a file")
    return DONE


def fetch_command(arguments: argparse.Namespace) -> int:
    """Bring a model into the cache folder, check all of it, and print where it is."""
    name: str = arguments.model or DEFAULT
    bus = Bus()

    def report(step: Step) -> None:
        bus.emit(
            ModelLoading(
                model=step.name,
                stage=STAGES[step.stage],
                done=step.done,
                total=step.total or 0,
                unit="bytes" if step.unit == "bytes" else "tensors",
            )
        )

    shown = view()
    # The folder is what counts: a broken terminal does not make it fail.
    with watching(bus, [] if shown is None else [shown]):
        if name in CATALOG:
            fetched = fetch(CATALOG[name], progress=report)
            path, repaired = fetched.path, fetched.repaired
        else:
            path, repaired = resolve(name, progress=report).path, ()
    for problem in repaired:
        say(f"repaired: {problem}")
    put(f"{path}")
    return DONE


def _here(name: str) -> Path:
    candidates = [folder_of(CATALOG[name])] if name in CATALOG else _converted()
    for folder in candidates:
        if folder.name == name and folder.is_dir():
            return folder
    how = f"run 'agentree models fetch {name}'" if name in CATALOG else "'agentree models list' shows what is"
    raise ModelError(f"{name!r} is not here: {how}")


def where_command(arguments: argparse.Namespace) -> int:
    """Print a model's folder, or the folder that all of them are kept in."""
    path = _here(arguments.model) if arguments.model else store.models()
    put(f"{path}")
    return DONE
