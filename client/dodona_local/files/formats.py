"""Define the formats of files, and find the format of a file.

Owns: the names and the suffixes. The import of this module loads nothing else of Dodona, because
the command line lists the names in its help.
"""

import enum
from pathlib import Path
from typing import Final


class FileFormat(enum.StrEnum):
    """The format of a file of rows. For reading, `json` and `jsonl` are the same, and `arrow` and
    `arrows` too."""

    CSV = "csv"
    JSON = "json"
    """One array of objects."""
    JSONL = "jsonl"
    """One object in each line."""
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
    """Return the given format, or that of the suffix. Raises InvalidRequest, which names the
    option."""
    found = given or SUFFIXES.get(path.suffix.lower())
    if found is None:
        from dodona_wire.errors import InvalidRequest

        names = ", ".join(FileFormat)
        raise InvalidRequest(f"the suffix of {path} names no format: give {option} ({names})")
    return found
