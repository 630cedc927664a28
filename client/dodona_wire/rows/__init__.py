"""Rows: schemas, keys, values, and their forms as bytes, Arrow, JSON and CSV. No I/O."""
