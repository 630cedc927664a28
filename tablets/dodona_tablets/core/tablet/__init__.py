"""Serve one tablet: its locks, its loads and its reads."""
