"""Constants and types as SQL. Pure.

Owns: the type of DuckDB for each kind of value, and how a constant is written.
"""

from typing import Final

from dodona_wire.expressions.values import Constant, Kind

SQL_TYPES: Final = {
    Kind.INT64: "bigint",
    Kind.UINT64: "ubigint",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.STRING: "blob",
    Kind.ANY: "varchar",
}


def sql_of(constant: Constant) -> str:
    """Return the SQL of a constant, as an expression of exactly its type."""
    kind, value = constant.kind, constant.value
    if value is None:
        return f"cast(null as {SQL_TYPES[kind]})"
    match kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.DOUBLE:
            return f"'{value!r}'::double"
        case Kind.STRING:
            return blob_sql(value)
    return f"({value})::{SQL_TYPES[kind]}"


def blob_sql(value: bytes) -> str:
    """Return a BLOB in SQL."""
    return "'" + "".join(_BYTES[it] for it in value) + "'::blob"


def text_sql(value: str) -> str:
    """Return a VARCHAR in SQL."""
    return "'" + value.replace("'", "''") + "'"


def text_of(value: bytes) -> str | None:
    """Return the bytes as UTF-8 text, or None if they are no text that SQL can hold."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _byte_sql(byte: int) -> str:
    is_plain = 32 <= byte < 127 and chr(byte) not in "'\\\""
    return chr(byte) if is_plain else f"\\x{byte:02X}"


_BYTES: Final = tuple(_byte_sql(it) for it in range(256))
