"""agentree beside other engines, on the same machine, model and workloads: `python -m benchmarks.peers`.

Starts the engines that are installed (docs/benchmarks.md says where they are looked for), keeps all of them
up, and goes through the workloads with the engines in turn: A B C A B C. Those that aren't measured are
stopped meanwhile (SIGSTOP). All get the same prompts and the same number of tokens, greedy, with a cold
cache; JSON is forced by each engine's own means. Every run is written to a file at once. Prints medians,
ratios and how many texts agree.
"""

import asyncio
import json
import os
import secrets
import socket
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from agentree import Runtime
from agentree.runtime.model.catalog import CATALOG, DEFAULT
from agentree.runtime.model.fetch import fetch
from benchmarks.half import half_gguf
from benchmarks.ledger import Ledger
from benchmarks.local import Local
from benchmarks.piped import Pipe
from benchmarks.remote import PeerFailed, Remote
from benchmarks.served import Http
from benchmarks.tasks import SHARED, mistakes, warm_up
from benchmarks.workloads import Figures, chosen, median, parser, run, run_here, say

Precision = Literal["fp32", "fp16", "bf16"]
KV_GIGABYTES = 2


@dataclass
class Entrant:
    """An engine that takes part."""

    name: str
    precision: Precision
    engine: Local | Remote
    ledger: Ledger = field(default_factory=Ledger)
    runs: dict[str, list[Figures]] = field(default_factory=dict[str, list[Figures]])
    texts: dict[str, list[Counter[str]]] = field(default_factory=dict[str, list[Counter[str]]])
    """What was said, by workload and run."""
    notes: list[str] = field(default_factory=list[str])


def home() -> Path:
    """Where the other engines are installed: AGENTREE_PEERS, or a folder in the user's cache."""
    return Path(os.environ.get("AGENTREE_PEERS", "~/.cache/agentree-peers")).expanduser()


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def vllm(root: Path, threads: int) -> Entrant | None:
    """VLLM's CPU build in float32: block size and thread binding as its documentation wants them."""
    program = root / "venv-vllm/bin/vllm"
    if not program.exists():
        return None
    port = _port()
    model = fetch(CATALOG[DEFAULT], verify=False).path
    command = [str(program), "serve", str(model), "--served-model-name", "model", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", "4096", "--block-size", "32"]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIGABYTES),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    engine = Http(command, environment, root / "logs/vllm.log", dialect="vllm", port=port)
    return Entrant("vllm", "fp32", engine)


def openvino(root: Path, threads: int) -> Entrant | None:
    """OpenVINO GenAI's continuous batching, float16 weights and float32 arithmetic, in its own process."""
    return _openvino(root, threads, "openvino", "fp16", "exact")


def openvino_native(root: Path, threads: int) -> Entrant | None:
    """The same as it comes: where the processor has bfloat16, arithmetic in that and a cache of 8 bits."""
    return _openvino(root, threads, "openvino-native", "bf16", "native")


def _openvino(root: Path, threads: int, name: str, precision: Precision, how: str) -> Entrant | None:
    python = root / "venv-ov/bin/python"
    if not python.exists():
        return None
    worker = Path(__file__).with_name("openvino_worker.py")
    command = [str(python), str(worker), str(half_gguf(root / "gguf")), str(threads), how]
    return Entrant(name, precision, Pipe(command, {}, root / f"logs/{name}.log"))


def llama_cpp(root: Path, threads: int) -> Entrant | None:
    """llama.cpp's server with float16 weights and a cache of its own for each of eight slots."""
    program = Path(os.environ.get("LLAMA_SERVER", root / "llamacpp/build/bin/llama-server")).expanduser()
    if not program.exists():
        return None
    port = _port()
    command = [str(program), "-m", str(half_gguf(root / "gguf")), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", str(threads), "-tb", str(threads), "-c", "32768", "-np", "8", "--no-kv-unified"]
    command += ["-b", "2048", "-ub", "512", "-fa", "off", "--jinja"]
    engine = Http(command, {}, root / "logs/llama.cpp.log", dialect="llama.cpp", port=port)
    return Entrant("llama.cpp", "fp16", engine)


PEERS = {"vllm": vllm, "openvino": openvino, "openvino-native": openvino_native, "llama.cpp": llama_cpp}


async def ours(stack: AsyncExitStack, precision: Precision) -> Entrant:
    """Our own runtime with weights of a precision, open as long as the stack is."""
    lm = await stack.enter_async_context(Runtime(weights=precision))
    local = Local(lm)
    entrant = Entrant(f"agentree {precision}", precision, local)
    stack.enter_context(entrant.ledger.observe(lm._home.session.engine()))
    await warm_up(local)
    return entrant


async def peer(stack: AsyncExitStack, entrant: Entrant) -> bool:
    """Start a peer, to be stopped with the stack; False if it can't be started or can't answer."""
    engine = entrant.engine
    if not isinstance(engine, Remote):
        return True
    engine.log.parent.mkdir(parents=True, exist_ok=True)
    say(f"starting {entrant.name}")
    stack.push_async_callback(engine.stop)
    try:
        await engine.start()
        await warm_up(engine)
    except PeerFailed as error:
        say(f"{entrant.name} is left out: {error}")
        await engine.stop()
        return False
    engine.pause()
    return True


async def one(entrant: Entrant, name: str, salt: str) -> None:
    """Run a workload on an entrant and keep the figures. Raises PeerFailed."""
    engine = entrant.engine
    if isinstance(engine, Local):
        figures = await run_here(name, engine, entrant.ledger, salt)
    else:
        engine.resume()
        figures = await run(name, engine, salt, engine.pid)
        engine.pause()
    entrant.notes += [f"{name}: {wrong}" for wrong in mistakes(name, engine.replies)]
    entrant.runs.setdefault(name, []).append(figures)
    entrant.texts.setdefault(name, []).append(Counter(reply.text for reply in engine.replies))
    say(f"{name} {entrant.name}: {figures.wall:.2f} s, {figures.cpu:.2f} CPU s")


def keep(file: Path, entrants: Sequence[Entrant]) -> None:
    """Write down all runs so far."""
    plain = {
        e.name: {
            "precision": e.precision,
            "notes": e.notes,
            "runs": {name: [asdict(one) for one in runs] for name, runs in e.runs.items()},
        }
        for e in entrants
    }
    file.write_text(json.dumps(plain, indent=1) + "\n")


def medians(entrants: Sequence[Entrant]) -> dict[str, dict[str, Figures]]:
    """Of each entrant and workload that was run at least once."""
    return {e.name: {name: median(runs) for name, runs in e.runs.items()} for e in entrants}


def fastest(
    found: Mapping[str, Mapping[str, Figures]], names: Sequence[str], workload: str, what: str
) -> float | None:
    """The least of a figure over some engines."""
    return min((getattr(found[n][workload], what) for n in names if workload in found[n]), default=None)


def report(entrants: Sequence[Entrant], workloads: Sequence[str]) -> str:
    """Markdown: seconds, then ratios of the fastest peer to each of ours, then whose texts agree."""
    found = medians(entrants)
    head = f"| | {' | '.join(workloads)} | mean of {', '.join(w for w in workloads if w in SHARED)} |"
    rule = "| --- |" + " ---: |" * (len(workloads) + 1)
    lines: list[str] = []
    for what, title in (("wall", "Wall seconds"), ("cpu", "CPU seconds")):
        lines += ["", f"{title}, medians:", "", head, rule]
        for name, of in found.items():
            cells = [f"{getattr(of[w], what):.2f}" if w in of else "" for w in workloads]
            lines.append(f"| {name} | {' | '.join(cells)} | |")
    peers = [e for e in entrants if isinstance(e.engine, Remote)]
    for what in ("wall", "cpu"):
        unit = "time" if what == "wall" else "CPU time"
        lines += ["", f"{unit.capitalize()} of the best peer over that of ours (above 1, ours is faster):"]
        lines += ["", head, rule]
        for e in entrants:
            same = [p.name for p in peers if p.precision == e.precision]
            groups = {f"best peer in {e.precision}": same, "best peer of all": [p.name for p in peers]}
            for title, names in groups.items() if isinstance(e.engine, Local) else ():
                ratios = {
                    w: best / getattr(found[e.name][w], what)
                    for w in workloads
                    if w in found[e.name] and (best := fastest(found, names, w, what)) is not None
                }
                shared = [ratios[w] for w in SHARED if w in ratios]
                mean = f"**{statistics.geometric_mean(shared):.2f}**" if shared else ""
                cells = [f"{ratios[w]:.2f}" if w in ratios else "" for w in workloads]
                lines.append(f"| {e.name}, {title} | {' | '.join(cells)} | {mean} |")
    lines += ["", "Replies that " + entrants[0].name + " gave as well:", "", head, rule]
    for e in entrants[1:]:
        cells = [_agreement(entrants[0], e, w) for w in workloads]
        lines.append(f"| {e.name} | {' | '.join(cells)} | |")
    notes = [f"- {e.name}: {note}" for e in entrants for note in sorted(set(e.notes))]
    return "\n".join([*lines, "", *(["What went wrong:", "", *notes] if notes else [])])


def _agreement(first: Entrant, second: Entrant, workload: str) -> str:
    runs = list(zip(first.texts.get(workload, []), second.texts.get(workload, []), strict=False))
    total = sum(one.total() for one, _ in runs)
    return f"{sum((one & two).total() for one, two in runs)} of {total}" if runs else ""


async def compare(
    peers: Sequence[str], workloads: Sequence[str], runs: int, threads: int, file: Path
) -> list[Entrant]:
    """Start, measure in turn, stop. The file is written again after every run."""
    root = home()
    async with AsyncExitStack() as stack:
        precisions: tuple[Precision, ...] = ("fp32", "fp16", "bf16")
        entrants = [await ours(stack, precision) for precision in precisions]
        for name in peers:
            found = PEERS[name](root, threads)
            if found is None:
                say(f"{name} is not installed under {root}")
            elif await peer(stack, found):
                entrants.append(found)
        up = list(entrants)
        for name in workloads:
            for _ in range(runs):
                salt = secrets.token_hex(3)
                for entrant in tuple(up):
                    try:
                        await one(entrant, name, salt)
                    except PeerFailed as error:
                        # Its other requests may still run: it can't be measured any more.
                        up.remove(entrant)
                        entrant.notes.append(f"{name}: {error}; left out from here on")
                        say(f"{entrant.name} {name} failed: {error}")
                    keep(file, entrants)
        return entrants


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)} (all)")
    made.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each engine (all cores)")
    arguments = made.parse_args()
    workloads = chosen(arguments, made)
    peers = [name for name in arguments.peers.split(",") if name]
    unknown = sorted(set(peers) - set(PEERS))
    if unknown:
        made.error(f"no peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    file: Path = arguments.json or home() / f"results/{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    say(f"every run is kept in {file}")
    entrants = asyncio.run(compare(peers, workloads, arguments.runs, arguments.threads, file))
    text = report(entrants, workloads)
    file.with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
