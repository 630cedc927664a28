"""Bulk loads: many rows, from many processes, visible at one commit timestamp or not at all.

Owns nothing itself. `ticket` is what all processes of a load know of it; `records` are the system
tables that remember loads; `opening` begins and ends them in the cells; `publishing` makes what is
staged visible; `recovery` clears up behind those who died; `session` is the list of all this.
Source: the Omnigraph document, "Recovery protocol", and the Delta document for its conflicts.
"""
