"""Models: where their files come from, how they are read, and the decoder that runs them.

Finding and fetching (`catalog`, `fetch`, `folder`, `config`) works without torch; `load` brings it in.
"""
