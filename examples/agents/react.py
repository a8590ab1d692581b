"""A ReAct agent with a calculator and a search over this project's own docs.

agentree run examples/agents/react.py --input "What is (45+55)*3?"
agentree run examples/agents/react.py --input "Which file explains the radix tree?"
"""

import sys
from pathlib import Path

from agentree import Limits, react
from agentree.tools.builtin.calculator import calculator
from agentree.tools.builtin.files import file_tools

DOCS = Path(__file__).parents[2] / "docs"
search_files, read_file = file_tools(DOCS)

agent = react(
    tools=[calculator, search_files, read_file], output=str, limits=Limits(turns=6, on_limit="answer")
)

if __name__ == "__main__":
    print(agent.run_sync(" ".join(sys.argv[1:]) or "What is (45+55)*3?"))
