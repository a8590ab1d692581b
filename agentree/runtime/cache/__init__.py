"""Bookkeeping of the KV cache: slots, the radix tree, eviction, leases. Knows no tensors and no model."""

from agentree.runtime.cache.cache import Cache
from agentree.runtime.cache.errors import CacheError, OutOfSlots
from agentree.runtime.cache.explain import Miss
from agentree.runtime.cache.holds import Lease, Reference, Revocation
from agentree.runtime.cache.node import Node
from agentree.runtime.cache.policy import Policy
from agentree.runtime.cache.results import Discarded, Eviction, Held, Match, Published, Report
from agentree.runtime.cache.tree import Lock

__all__ = [
    "Cache",
    "CacheError",
    "Discarded",
    "Eviction",
    "Held",
    "Lease",
    "Lock",
    "Match",
    "Miss",
    "Node",
    "OutOfSlots",
    "Policy",
    "Published",
    "Reference",
    "Report",
    "Revocation",
]
