"""The workloads on real clusters: what drives them, what it leaves, and who judges it."""
