"""Decide which tablets a cell has, and take over the rows of new tablets."""
