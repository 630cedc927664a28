"""The rules of prerequisites, searched state by state: what a condition promises at a commit.

Owns: cells, transactions with conditions, the promises, and planted bugs that break a rule each.
The search itself is that of `replication_model.explorer`.
"""
