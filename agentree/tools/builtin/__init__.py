"""Tools that come with agentree."""
