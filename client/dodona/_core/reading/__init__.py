"""Rows on their way out: lookups, ranges, pages, versions, changes, queries."""
