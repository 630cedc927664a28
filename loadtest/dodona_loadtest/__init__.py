"""Load tests and benchmarks of Dodona, side by side with its peers.

Owns: the workloads, which drive real clusters and simulated ones alike, the histories that they
leave, and the checkers that judge these.
"""
