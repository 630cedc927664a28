"""Drivers and transports: the only part of the client that uses sockets, clocks and threads."""
