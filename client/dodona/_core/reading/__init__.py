"""Read rows: by key, by range, page by page, old versions, changes, and with SQL."""
