"""The rules of serializable transactions, searched state by state: reads are validated at a commit.

Owns: two cells with ranges of rows, transactions that read and write them, the promises, and
planted bugs that break a rule each. The search itself is that of `replication_model.explorer`.
"""
