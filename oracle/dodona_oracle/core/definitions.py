"""What a table may be: the checks of a definition before it enters the catalog. Pure.

Owns: the rules of paths, schemas and pivot keys. Each raises a typed error that says what and
where.
"""

import re
from typing import Final

from dodona._core.messages import CreateTable
from dodona.errors import DataCorrupted, InvalidRequest, LimitExceeded, SchemaViolation
from dodona.keys import decode_key
from dodona.schema import TableSchema
from dodona.types import KEY_MIN, Key

PATH_LENGTH_MAX: Final = 1024
TABLETS_PER_TABLE_MAX: Final = 10_000
PIVOT_KEY_BYTES_MAX: Final = 4096

_path: Final = re.compile(r"/(?:/[A-Za-z0-9_.-]+)+")


def check_definition(request: CreateTable) -> None:
    """Raises InvalidRequest, SchemaViolation or LimitExceeded."""
    check_path(request.path)
    schema = TableSchema.parse(request.columns)
    _check_pivot_keys(request.pivot_keys, schema.key_types)


def check_path(path: str) -> None:
    """Raises InvalidRequest unless the path names a table: `//name/name`."""
    if len(path) > PATH_LENGTH_MAX:
        text = f"a path has at most {PATH_LENGTH_MAX} characters"
        raise InvalidRequest(text, path=path[:80], length=len(path))
    if _path.fullmatch(path) is None:
        text = "a path is //name or //name/name; a name is letters, digits and any of _ . -"
        raise InvalidRequest(text, path=path)


def _check_pivot_keys(pivot_keys: tuple[Key, ...], key_types: tuple[str, ...]) -> None:
    if not pivot_keys or pivot_keys[0] != KEY_MIN:
        raise SchemaViolation("the first pivot key must be empty: it opens the first tablet")
    if len(pivot_keys) > TABLETS_PER_TABLE_MAX:
        text = f"a table has at most {TABLETS_PER_TABLE_MAX} tablets"
        raise LimitExceeded(text, tablet_count=len(pivot_keys))
    for index in range(1, len(pivot_keys)):
        if not pivot_keys[index - 1] < pivot_keys[index]:
            raise SchemaViolation("pivot keys must rise strictly", index=index)
        _check_pivot_key(pivot_keys[index], key_types, index)


def _check_pivot_key(key: Key, key_types: tuple[str, ...], index: int) -> None:
    if len(key) > PIVOT_KEY_BYTES_MAX:
        text = f"a pivot key has at most {PIVOT_KEY_BYTES_MAX} bytes"
        raise LimitExceeded(text, index=index, size_bytes=len(key))
    reason = ""
    for count in range(1, len(key_types) + 1):
        try:
            decode_key(key, key_types[:count])
        except DataCorrupted as error:
            reason = error.message
        else:
            return
    raise SchemaViolation(
        f"a pivot key must be values of the first key columns: {reason}", index=index
    )
