"""The inference runtime: requests in, tokens out. Below it: constraints, the radix cache and the model."""

import os

# Threads that wait for work by spinning take the cores away from those that have some. The OpenMP runtime
# reads this once, when torch is imported; whoever set it already, keeps it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
