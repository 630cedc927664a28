"""A whole Dodona in one thread: production cores, virtual time, seeded faults, outside checkers."""
