"""Serve YTsaurus's HTTP API, version 4, for dynamic tables. Each module has one topic of
commands."""
