"""Planted bugs: what is known to go wrong in such systems, put in for a test, and caught."""
