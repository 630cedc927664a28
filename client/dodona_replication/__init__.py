"""Replicated logs: which process owns a log, and which replicas have it.

Stands on what all servers share. Must not import: any server, any client.
"""
