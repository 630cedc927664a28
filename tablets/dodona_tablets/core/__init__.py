"""A node without IO: rows, locks, transactions. No clock, socket, file, thread or random number."""
