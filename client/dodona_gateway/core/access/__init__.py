"""Who calls, and what they may do: paths and patterns, grants, tokens, and the cache's rules."""
