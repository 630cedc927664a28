"""Rows on their way in: buffered, committed, written at once, in bulk."""
