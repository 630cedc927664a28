"""The workloads on real clusters: the code that drives them, their records, and the verdict."""
