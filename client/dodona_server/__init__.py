"""The parts of every server process: its runtime, its port, its pages, its log and its files.

Knows no particular server. Must not import: any client, any server.
"""
