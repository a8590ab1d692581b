"""For tests of programs: runtimes whose outputs are written down, over the real bookkeeping of the cache."""

from agentree.testing.checks import assert_cached, forbid_models
from agentree.testing.replay import ReplayRuntime
from agentree.testing.runtime import ScriptedRuntime
from agentree.testing.script import Reply, ScriptedRequest, ScriptError, final_answer

__all__ = [
    "ReplayRuntime",
    "Reply",
    "ScriptError",
    "ScriptedRequest",
    "ScriptedRuntime",
    "assert_cached",
    "final_answer",
    "forbid_models",
]
