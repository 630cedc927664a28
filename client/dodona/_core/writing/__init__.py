"""Writes of rows: buffer them, commit them, write them without a transaction, or write in bulk."""
