"""Run the benchmarks one after the other: `python -m benchmarks`, or some: `python -m benchmarks cache`."""

import argparse
import subprocess
import sys

SUITE = {
    "workloads": ("seven agent workloads on the embedded model: time, tokens, cache", ()),
    "cache": ("tree work and eviction, without a model", ()),
    "replay": ("recorded agents against the cache, for lru, plan and the optimum", ()),
    "agents": ("recorded agents as programs on the scripted runtime, to the token", ()),
    "overhead": ("tree work as a share of wall time, with nothing to share", ()),
    "startup": ("from the start of a process to its first token", ()),
    "forward": ("one forward pass, each way to run it beside the plain one", ()),
    "agreement": ("greedy output of each way to run the model against the plain one", ("--prompts", "60")),
    "constraints": ("constraint engines side by side on real schemas", ()),
    "toolcalls": ("tool calls of the embedded model: valid, forced, forward passes", ("--n", "50")),
    "choices": ("rules to decide between options", ("--n", "40")),
    "arithmetic": ("how often the embedded model answers through the calculator", ("--seed", "1")),
}


def main() -> int:
    """Run what was named, or everything; 1 if any of them failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="\n".join(f"{name:12} {what}" for name, (what, _) in SUITE.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones; all if none is named")
    names: list[str] = parser.parse_args().names
    unknown = sorted(set(names) - set(SUITE))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}: there are {', '.join(SUITE)}")
    failed: list[str] = []
    for name in names or SUITE:
        what, options = SUITE[name]
        print(f"\n# {name}: {what}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options]).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
