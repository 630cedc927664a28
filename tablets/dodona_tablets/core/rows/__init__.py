"""Rows of one tablet: their versions, the stores and chunks that these are in, and what may go."""
