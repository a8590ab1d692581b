"""`python -m agentree`: the same as the `agentree` command."""

import sys

from agentree.cli import main

if __name__ == "__main__":
    sys.exit(main())
