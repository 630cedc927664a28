"""Give the parts of a list or a dict that is a parameter one type each. Pure.

Owns: what DuckDB gets for a dict, and which values may stand side by side. A dict whose names are
text is a STRUCT. A dict with other keys, or without any, is a MAP, for which DuckDB's client takes
two lists, `key` and `value`. DuckDB finds one type for all items of a list, and would change values
of other types. So these are refused here, and the error names the parameter and the place inside.
Must not import: duckdb.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any, Final

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.type_names import FIELD_LENGTH_MAX, TYPE_DEPTH_MAX
from dodona_wire.shown import shown

DECIMAL_DIGITS_MAX: Final = 38
"""The most digits of a DECIMAL. DuckDB would round a longer one to a DOUBLE."""
_MAP: Final = frozenset({"key", "value"})


def check_depth(depth: int, place: str) -> None:
    """Check how many lists and dicts a value is inside. Raises LimitExceeded."""
    if depth > TYPE_DEPTH_MAX:
        text = f"{place} is nested deeper than {TYPE_DEPTH_MAX} levels. Pass a flatter value."
        raise LimitExceeded(text, nesting_max=TYPE_DEPTH_MAX)


_SIZED: Final = (str, bytes, list, dict)
"""Values with a length. DuckDB compares the lengths, of characters with those of lists, too."""


def shown_key(key: Any) -> str:
    """Return a key as it stands in the place of a part."""
    return key if isinstance(key, str) and key.isidentifier() else shown(key)


def checked_dict(keys: Sequence[Any], values: Sequence[Any], place: str) -> dict[str, Any]:
    """Return what DuckDB's client gets for a dict of checked keys and values. Raises
    InvalidRequest."""
    kinds = {type(it) for it in keys}
    if kinds == {str}:
        _check_names(keys, place)
        found = dict(zip(keys, values, strict=True))
        if found.keys() == _MAP and all(it is None or isinstance(it, _SIZED) for it in values):
            text = f"{place} has the fields key and value, and DuckDB takes such a dict for a MAP,"
            raise InvalidRequest(f"{text} by their lengths. Rename one, or pass two parameters.")
        return found
    if len(kinds) > 1 or kinds - {int, bytes}:
        names = " and ".join(sorted(it.__name__ for it in kinds))
        text = f"{place} has keys of the types {names}. The keys of a dict are text, or ints, or"
        raise InvalidRequest(f"{text} bytes. Use one of these types.")
    return {"key": [*keys], "value": [*values]}


def _check_names(names: Sequence[str], place: str) -> None:
    spellings: dict[str, str] = {}
    for name in names:
        if not 0 < len(name) <= FIELD_LENGTH_MAX or "\0" in name:  # Arrow's names end at a zero
            text = f"{place} has the field {shown(name)}, and the name of a field has 1 to"
            raise InvalidRequest(f"{text} {FIELD_LENGTH_MAX} characters, and no zeros.")
        first = spellings.setdefault(name.lower(), name)
        if first != name:
            text = f"{place} has the fields {shown(first)} and {shown(name)}, which are the same"
            raise InvalidRequest(f"{text} in SQL. Rename one of them.")


def _is_map(value: Mapping[str, Any]) -> bool:
    return value.keys() == _MAP and all(type(it) is list for it in value.values())


def of_one_type(values: Sequence[Any], place: str) -> list[Any]:
    """Return checked values that share one type of DuckDB, such as the items of a list. Ints
    beside floats become floats. Raises InvalidRequest, which names the place."""
    present = [it for it in values if it is not None]
    kinds = {_kind(it) for it in present}
    if kinds == {"int", "float"}:
        return [None if it is None else _exact_float(it, place) for it in values]
    if len(kinds) > 1:
        names = " and ".join(sorted(kinds))
        raise InvalidRequest(f"{place} has values of the types {names}. Use one type in a list.")
    kind = next(iter(kinds), "")
    if kind == "Decimal":
        check_digits(present, place)
    if kind not in _PARTS:
        return [*values]
    inside = place if len(present) == 1 else f"{place}[…]"
    made = iter(_PARTS[kind](present, inside))
    return [None if it is None else next(made) for it in values]


def _kind(value: Any) -> str:
    """Return the name of a type. DuckDB would change the values of a list that has several."""
    name = type(value).__name__
    if name == "dict":
        return "MAP" if _is_map(value) else "STRUCT"
    has_zone = isinstance(value, datetime | time) and value.tzinfo is not None
    return f"{name} with a time zone" if has_zone else name


def _lists(lists: Sequence[list[Any]], place: str) -> list[Any]:
    made = iter(of_one_type([it for found in lists for it in found], place))
    return [[next(made) for _ in found] for found in lists]


def _structs(structs: Sequence[dict[str, Any]], place: str) -> list[Any]:
    names = structs[0].keys()
    for it in structs:
        if it.keys() != names:
            text = f"{place} has dicts with different fields: {shown([*names])} and"
            raise InvalidRequest(f"{text} {shown([*it])}. Give each the same fields, or None.")
    parts = [
        of_one_type([it[name] for it in structs], f"{place}.{shown_key(name)}") for name in names
    ]
    return [dict(zip(names, it, strict=True)) for it in zip(*parts, strict=True)]


def _maps(maps: Sequence[dict[str, Any]], place: str) -> list[Any]:
    keys = _lists([it["key"] for it in maps], f"{place}.keys()")
    values = _lists([it["value"] for it in maps], f"{place}.values()")
    return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]


_PARTS: Final[dict[str, Callable[[Sequence[Any], str], list[Any]]]] = {
    "list": _lists,
    "STRUCT": _structs,
    "MAP": _maps,
}
"""By kind of nested values, the function that gives each of their parts one type."""


def _exact_float(value: float, place: str) -> float:
    found = float(value)
    if found == value or found != found:
        return found
    raise InvalidRequest(f"{place} has floats and the int {value}, which no float is equal to.")


def check_digits(values: Sequence[Decimal], place: str) -> None:
    """Check that one DECIMAL has all digits of all values. DuckDB would round them. Raises
    InvalidRequest."""
    counts = [_digits_of(it) for it in values]
    before, after = [max(it) for it in zip(*counts, strict=True)]
    if before + after > DECIMAL_DIGITS_MAX:
        raise InvalidRequest(
            f"{place} needs a DECIMAL of {before + after} digits, {before} before the point and "
            f"{after} after it. A DECIMAL has at most {DECIMAL_DIGITS_MAX}. Round the digits, or "
            "pass a float."
        )


def _digits_of(value: Decimal) -> tuple[int, int]:
    """Return how many digits before and after the point DuckDB takes for a value. It counts the
    zero of 0.05, but not that of 0.5."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "only a Decimal that is not finite has another exponent"
    after = max(-exponent, 0)
    before = len(digits) + exponent
    return (1 if before < 0 else before), after
