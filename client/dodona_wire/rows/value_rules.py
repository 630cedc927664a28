"""Rules that single values of stored and of logical types have in common. Pure.

Owns: which values of NumPy stand for a value of Python. numpy is never imported: a value brings it.
"""

from typing import Any, Final

from dodona_wire.errors import SchemaViolation

_DOUBLE_BYTES: Final = 8
_PLAIN_KINDS: Final = "biuOSU"
"""NumPy's kinds of items that a list of Python has without loss, beside floats."""
_DATE_UNITS: Final = ("D",)
"""Units of NumPy's times that a date has."""
_DURATION_UNITS: Final = ("W", "D", "h", "m", "s", "ms", "us")
"""Units of NumPy's durations that a timedelta has. Months and years have no fixed length."""


def mismatch(value: Any, column: str, expected: str) -> SchemaViolation:
    """Return the error for a value of a type that the column does not take."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ != "numpy" else f"numpy.{kind.__name__}"
    return SchemaViolation(f"column {column!r} takes {expected}, not {name}", column=column)


def is_numpy_scalar(value: Any) -> bool:
    """Return whether a value is a single value of NumPy."""
    return type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()


def plain_number(value: Any) -> Any:
    """Return a number or a truth value of NumPy as the same value of Python, and any other value as
    it is. A long double that is no double stays as it is, since it would be rounded."""
    if not is_numpy_scalar(value) or value.dtype.kind not in "biuf":
        return value
    if value.dtype.kind == "f" and value.dtype.itemsize > _DOUBLE_BYTES:
        found = float(value)  # `item` returns another long double
        return found if found == value or value != value else value
    return value.item()


def plain_scalar(value: Any) -> Any:
    """Return a number, a date or a duration of NumPy as the same value of Python, and any other
    value as it is. A datetime of NumPy has no time zone, so it names no moment."""
    if not is_numpy_scalar(value) or value.dtype.kind not in "mM":
        return plain_number(value)
    unit = value.dtype.str.partition("[")[2].rstrip("]")
    found = value.item()  # None for NaT, and a number if Python has no such value
    is_duration = value.dtype.kind == "m"
    if is_duration and unit == "ns" and isinstance(found, int) and found % 1000 == 0:
        return value.astype("m8[us]").item()
    units = _DURATION_UNITS if is_duration else _DATE_UNITS
    return value if unit not in units or isinstance(found, int | None) else found


def items_of_array(array: Any) -> list[Any]:
    """Return the items of an array of NumPy. Times and long doubles stay NumPy's: as values of
    Python, they could become numbers or other numbers. NaT is None, since such an array has no
    other null."""
    dtype = array.dtype
    is_double = dtype.kind == "f" and dtype.itemsize <= _DOUBLE_BYTES
    if is_double or dtype.kind in _PLAIN_KINDS:
        found: list[Any] = array.tolist()
        return found
    if dtype.kind in "mM":
        return [None if it != it else it for it in array]
    return [*array]
