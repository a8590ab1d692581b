"""The inference runtime: requests in, tokens out. Below it: constraints, the radix cache and the model."""
