"""The rules of early locks, searched state by state: lock first, then begin.

Owns: cells with their queues, owners, plain and blind writers, the promises, and planted bugs that
break a rule each. The search itself is that of `replication_model.explorer`.
"""
