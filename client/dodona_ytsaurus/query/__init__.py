"""Translate YTsaurus's query language, as `select_rows` takes it, to Dodona's SQL."""
