"""Replay the log into a cell at its start, and list the work that was undecided."""
