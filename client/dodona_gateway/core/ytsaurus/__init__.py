"""YTsaurus's words for parameters, formats, errors, schemas and attributes."""
