"""The half of a node that has clocks, files and sockets. It is thin: it decides nothing."""
