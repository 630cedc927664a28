"""SQL at one timestamp: what a query reads, how little of it, and DuckDB over what was read."""
