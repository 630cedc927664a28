"""Who calls, and what the caller may do: paths, patterns, grants, tokens, and the token cache."""
