"""Models: where their files come from, how they are read, and the decoder that runs them.

Finding and fetching (`catalog`, `fetch`, `folder`, `config`) works without torch; `load` brings it in.
"""

import os

# Threads that wait for work by spinning take the cores away from those that have some. The OpenMP runtime
# reads this once, when torch is imported; whoever set it already, keeps it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
