"""The timestamp oracle: the master with its catalog, and the proxies that batch for it."""
