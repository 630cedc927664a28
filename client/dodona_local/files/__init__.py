"""Read and write files of rows: CSV, JSON, Parquet and Arrow.

Owns: only the name. Rows come in `parts`, with one part at a time in memory. `formats` finds the
format of a file, and `dodona_wire.rows.text_format` the text form of values.
"""
