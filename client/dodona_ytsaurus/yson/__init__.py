"""Read and write YSON, YTsaurus's own data format, in its text and binary forms.

Owns: the names that others use of this package. A parameter or an attribute is
one value (`loads`, `dumps`). Rows are a list fragment. `RowReader` reads it part by part, and
`RowWriter` writes it from columns. Imports no clock and no I/O, and nothing of YTsaurus's own
packages.
"""

from dodona_ytsaurus.yson.limits import YsonLimits
from dodona_ytsaurus.yson.reader import loads
from dodona_ytsaurus.yson.row_writer import RowWriter
from dodona_ytsaurus.yson.rows import RowReader
from dodona_ytsaurus.yson.values import Attributed, Format, Kind, Strings, Uint64
from dodona_ytsaurus.yson.writer import dumps

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
