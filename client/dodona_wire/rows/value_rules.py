"""Rules that single values of stored and of logical types have in common. Pure."""

from typing import Any

from dodona_wire.errors import SchemaViolation


def mismatch(value: Any, column: str, expected: str) -> SchemaViolation:
    """Return the error for a value of a type that the column does not take."""
    return SchemaViolation(
        f"column {column!r} takes {expected}, not {type(value).__name__}", column=column
    )


def plain_number(value: Any) -> Any:
    """Return a number of NumPy as the same number of Python, and any other value as it is."""
    is_number = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_number and value.dtype.kind in "iuf" else value
