"""YSON, YTsaurus's own data format, read and written in its text and binary forms.

Owns: what the rest of the gateway uses of it. A parameter or an attribute is one value (`loads`,
`dumps`); rows are a list fragment, which is read part by part (`RowReader`) and written from
columns (`RowWriter`). Imports no clock and no I/O, and nothing of YTsaurus's own packages.
"""

from dodona_gateway.core.yson.limits import YsonLimits
from dodona_gateway.core.yson.reader import loads
from dodona_gateway.core.yson.row_writer import RowWriter
from dodona_gateway.core.yson.rows import RowReader
from dodona_gateway.core.yson.values import Attributed, Format, Kind, Strings, Uint64
from dodona_gateway.core.yson.writer import dumps

__all__ = [
    "Attributed",
    "Format",
    "Kind",
    "RowReader",
    "RowWriter",
    "Strings",
    "Uint64",
    "YsonLimits",
    "dumps",
    "loads",
]
