"""What every server process is made of: its runtime, its port, its pages, its log, its files.

Knows no server in particular. Must not import: any client, any server.
"""
