"""The node's sans-IO half: rows, locks, transactions. No clock, socket, file, thread or random."""
