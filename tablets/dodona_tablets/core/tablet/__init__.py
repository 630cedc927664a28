"""One tablet: its locks and loads, and what a read sees of it."""
