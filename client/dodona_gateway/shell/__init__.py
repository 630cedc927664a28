"""The gateway's shell: the web application, its edges, and the client that does the work."""
