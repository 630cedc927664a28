"""Commits: who may begin, both halves of two-phase commit, and what time does to them."""
