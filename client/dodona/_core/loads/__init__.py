"""Bulk loads: many rows, from many processes, visible at one commit timestamp or not at all.

Owns nothing itself:
- `ticket`: what all processes of a load know about it;
- `records`: the system tables that remember loads;
- `versions`: which version of an application is in which table;
- `tables`: whether a table is still the one of the load;
- `cells`: begins, renews and ends loads in the cells;
- `leases`: when the loads of a client are renewed;
- `publishing`: makes the staged rows visible;
- `session`: all operations on loads, with the recovery of loads whose owners have ended.

Source: the Omnigraph document, "Recovery protocol", and the Delta document for its conflicts.
"""
