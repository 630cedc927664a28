"""The oracle's shells: sockets, files, clocks and threads around the cores."""
