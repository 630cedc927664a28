"""Which formats there are, and which one a file has.

Owns: the names and the suffixes. Imports nothing of Dodona on its own import, since the command
line lists the names in its help.
"""

import enum
from pathlib import Path
from typing import Final


class FileFormat(enum.StrEnum):
    """Of a file of rows. On the way in `json` and `jsonl` are one, as `arrow` and `arrows` are."""

    CSV = "csv"
    JSON = "json"
    """One array of objects."""
    JSONL = "jsonl"
    """An object a line."""
    PARQUET = "parquet"
    ARROW = "arrow"
    """Arrow's IPC file."""
    ARROWS = "arrows"
    """Arrow's IPC stream."""


SUFFIXES: Final = {
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".ipc": FileFormat.ARROW,
    ".arrows": FileFormat.ARROWS,
}


def format_of(path: Path, given: FileFormat | None, option: str) -> FileFormat:
    """The one given, or that of the suffix. Raises InvalidRequest, which names the option."""
    found = given or SUFFIXES.get(path.suffix.lower())
    if found is None:
        from dodona_wire.errors import InvalidRequest

        names = ", ".join(FileFormat)
        raise InvalidRequest(f"{path} does not say which format it has: give {option} ({names})")
    return found
