"""Load tests and benchmarks of Dodona, beside its peers.

Owns: the workloads, which drive real clusters and simulated ones alike. Also owns the histories
that they leave, and the checkers that judge these.
"""
