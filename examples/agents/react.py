"""A ReAct agent with a calculator and a search over this project's own docs.

agentree run examples/agents/react.py --input "What is (45+55)*3?"

The embedded model calls the search too, but a larger one (--model) makes more of what it finds.
"""

import sys
from pathlib import Path

from agentree import Message, ToolCall, ToolResult, assistant, react, tool_call, tool_result, user
from agentree.tools import calculator, file_tools

DOCS = Path(__file__).parents[2] / "docs"
search_files, read_file = file_tools(DOCS)


def shot(question: str, tool: str, arguments: dict[str, str], result: str, answer: str) -> list[Message]:
    """A worked exchange. Small models follow a protocol that they have seen, and copy its last form."""
    call = ToolCall(f"shot-{tool}", tool, arguments)
    final = assistant(f'{{"name": "final_answer", "arguments": {{"answer": "{answer}"}}}}')
    return [user(question), tool_call(call), tool_result(ToolResult(call, result)), final]


def searched(word: str, file: str) -> list[Message]:
    lines = "\n".join(
        f"{file}:{number}: Here a {word} is explained: it is one of several." for number in (9, 14)
    )
    return shot(f"Where is the word {word} used?", "search_files", {"query": word}, lines, file)


def calculated(sum_: str, result: str) -> list[Message]:
    return shot(f"What is {sum_}?", "calculator", {"expression": sum_}, result, result)


SHOTS = (
    *searched("fork", "graphs.md"),
    *calculated("96-8", "88"),
    *searched("tree", "cache.md"),
    *calculated("(20+30)*4", "200"),
    *calculated("(6+9)*5", "75"),
    *calculated("25+4", "29"),
)
agent = react(tools=[calculator, search_files, read_file], output=str, examples=SHOTS)

if __name__ == "__main__":
    print(agent.run_sync(" ".join(sys.argv[1:]) or "What is (45+55)*3?"))
