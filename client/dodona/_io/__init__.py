"""Drivers and transports: the only part of the client that knows sockets, clocks and threads."""
