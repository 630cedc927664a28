"""The node's half that knows clocks, files and sockets. Thin: it decides nothing."""
