"""Recorded agents of other systems as sequences of prompts: what each call reads, writes, and waits for.

Reads the folder `data/agents` of AGENTREE_SHARED, or of ../shared beside the repository.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Call:
    """One generation. `tool`: what the agent waits for next, "" if nothing comes after."""

    prompt: Ids
    output: Ids
    tool: str


@dataclass(frozen=True)
class Agent:
    """One recorded run of one program."""

    name: str
    calls: list[Call]


@dataclass
class Words:
    """A deterministic tokenizer without a model: pieces of up to four letters, digits, other characters."""

    ids: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self, text: str) -> list[int]:
        pieces = re.findall(r" ?[A-Za-z]{1,4}|[A-Za-z]{1,4}|\d|\s+|.", text)
        return [self.ids.setdefault(piece, len(self.ids)) for piece in pieces]


def folder() -> Path:
    """Where the recordings are. Raises FileNotFoundError."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    found = Path(os.environ.get("AGENTREE_SHARED", beside)) / "data" / "agents"
    if not found.is_dir():
        raise FileNotFoundError(f"no recordings in {str(found)!r}: set AGENTREE_SHARED to what holds data/")
    return found


def load(encode: Encode) -> list[Agent]:
    """All recorded agents, by kind."""
    root = folder()
    return [*_conversations(root, encode), *_react(root, encode), *_searches(root, encode)]


@dataclass
class _Transcript:
    """Append-only tokens; each piece of text is tokenized once."""

    encode: Encode
    ids: list[int] = field(default_factory=list[int])

    def add(self, role: str, text: str) -> None:
        self.ids += self.encode(f"<|im_start|>{role}\n{text}<|im_end|>\n")

    def call(self, output: str, tool: str) -> Call:
        opened = [*self.ids, *self.encode("<|im_start|>assistant\n")]
        generated = self.encode(f"{output}<|im_end|>\n")
        self.ids = opened + generated
        return Call(np.array(opened, np.int32), np.array(generated, np.int32), tool)

    def copy(self) -> "_Transcript":
        return _Transcript(self.encode, list(self.ids))


def _conversations(root: Path, encode: Encode) -> Iterator[Agent]:
    """tau-bench: a policy, a customer who writes, tools that are called."""
    for number, task in enumerate(json.loads((root / "taubench/gpt-4o-airline.json").read_text())):
        transcript, calls = _Transcript(encode), list[Call]()
        messages: list[dict[str, Any]] = task["traj"]
        for i, message in enumerate(messages):
            tools: list[dict[str, Any]] = message.get("tool_calls") or []
            if message["role"] == "assistant":
                tool = str(tools[0]["function"]["name"]) if tools else "customer"
                text = str(message["content"] or "") + "".join(json.dumps(t["function"]) for t in tools)
                calls.append(transcript.call(text, tool if i + 1 < len(messages) else ""))
            else:
                transcript.add(message["role"], str(message["content"]))
        yield Agent(f"tau-bench {number}", calls)


def _react(root: Path, encode: Encode) -> Iterator[Agent]:
    """ReAct on HotpotQA: six examples, then thought, action and observation in turns."""
    head = str(json.loads((root / "react/prompts_naive.json").read_text())["webthink_simple6"])
    lines = (root / "react/react_hotpot_reflexion_trial1.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        for question, steps in json.loads(line).items():
            transcript, calls = _Transcript(encode), list[Call]()
            transcript.add("system", head)
            transcript.add("user", question)
            for step in steps:
                action = str(step["action"])
                tool = "" if action.startswith("Finish") else action.partition("[")[0]
                calls.append(transcript.call(f"Thought: {step['thought']}\nAction: {action}", tool))
                transcript.add("tool", str(step["observation"]))
            yield Agent(f"react {number}", calls)


def _searches(root: Path, encode: Encode) -> Iterator[Agent]:
    """ToolBench: depth-first searches, which come back to earlier states."""
    for path in sorted((root / "toolbench_dfs").glob("*.json")):
        record = json.loads(path.read_text())
        transcript = _Transcript(encode)
        transcript.add("system", json.dumps(record["answer_generation"]["function"]))
        transcript.add("user", str(record["answer_generation"]["query"]))
        yield Agent(f"toolbench {path.stem}", list(_descend(record["tree"]["tree"], transcript, "", "")))


def _descend(node: dict[str, Any], transcript: _Transcript, written: str, action: str) -> Iterator[Call]:
    for child in node["children"]:
        kind, text = child["node_type"], f"{written}{child['node_type']}: {child['description']}\n"
        if kind != "Action Input":
            yield from _descend(child, transcript, text, child["description"] if kind == "Action" else action)
            continue
        branch = transcript.copy()
        yield branch.call(text, action)
        branch.add("tool", str(child["observation"]))
        yield from _descend(child, branch, "", "")
