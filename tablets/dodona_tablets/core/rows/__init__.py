"""Hold the rows of one tablet: their versions, stores and chunks, and the rules of retention."""
