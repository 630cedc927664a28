"""The systems that are measured: how each is started privately, and how it is loaded."""
