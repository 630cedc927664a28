"""Commits: who may begin, both halves of two-phase commit, retries and timeouts."""
