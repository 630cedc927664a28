"""YTsaurus's HTTP API, version 4, for dynamic tables: a module for each topic of its commands."""
