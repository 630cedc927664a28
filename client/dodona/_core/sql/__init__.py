"""SQL: find the tables of a query and the rows that it needs, and compute it with DuckDB."""
