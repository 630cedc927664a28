"""Connections between processes of Dodona, and what they need: threads, keys, traces."""
