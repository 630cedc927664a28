"""Parameters, formats, errors, schemas and attributes in YTsaurus's terms."""
