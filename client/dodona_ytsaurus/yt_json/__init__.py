"""Read and write JSON in YTsaurus's form: YSON's values and rows, for clients without YSON.

Owns: the names that others use of this package. In this form a string is bytes.
Each byte becomes the character of its number ("mangled", the default), or the bytes are UTF-8 and
stand for themselves. Attributes become `{"$attributes": {...}, "$value": ...}`, and a key that
begins with `$` gets another one in front. A number without point and exponent is an integer, and
the column's type must say of which kind. Imports no clock and no I/O.
"""

from dodona_ytsaurus.yt_json.options import JsonOptions
from dodona_ytsaurus.yt_json.reading import JsonRowReader, loads_json
from dodona_ytsaurus.yt_json.writing import dump_rows_json, dumps_json

__all__ = ["JsonOptions", "JsonRowReader", "dump_rows_json", "dumps_json", "loads_json"]
