"""Tokens as values: runtimes, transcripts and what is generated on them."""

from agentree.lm.forks import Forks
from agentree.lm.generation import Generation, Stats, Usage
from agentree.lm.runtime import Runtime
from agentree.lm.stream import Stream
from agentree.lm.transcript import Transcript

__all__ = ["Forks", "Generation", "Runtime", "Stats", "Stream", "Transcript", "Usage"]
