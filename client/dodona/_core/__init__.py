"""The client without I/O: protocols, checks and results, with the terms that servers share."""
