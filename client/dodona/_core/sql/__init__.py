"""SQL: which tables a query names, how little of them it needs, and DuckDB over what was read."""
