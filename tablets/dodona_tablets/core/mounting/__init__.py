"""Which tablets a cell has: what the master assigned, and rows that a new tablet takes over."""
