"""The documents as programs: their blocks of code, how each page runs, and the pages that are
generated. `python -m documents` writes these anew."""
