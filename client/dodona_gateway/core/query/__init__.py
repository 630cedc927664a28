"""YTsaurus's query language, that which `select_rows` gets, as Dodona's SQL."""
