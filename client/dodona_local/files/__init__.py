"""Files of rows: CSV, JSON, Parquet and Arrow, read into tables and written from them.

Owns: nothing but the name. Rows come in `parts`, a part at a time in memory; `formats` says what a
file is; how values are spelled is `dodona_wire.rows.text_format`'s.
"""
