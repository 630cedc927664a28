"""YTsaurus's words: parameters, formats, errors, schemas and attributes as its clients know them."""
