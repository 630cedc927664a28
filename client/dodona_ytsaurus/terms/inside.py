"""Find and change parts of an attribute's value, by the names and places of a path. Pure.

Owns: the steps, for looking and for changing. In a map a step is a name. In a list it is a place
(`0`, or `-1` from its end). After a value with attributes, `@name` is one of them.
"""

from typing import Any, Final

from dodona_ytsaurus.yson import Attributed

MISSING: Final = object()
"""The result for a place that does not exist. As a value to put, it removes the old value."""
END: Final = "end"
"""The step at which a list takes another item."""


def inside(value: Any, name: str) -> Any:
    """Return the value of that name or at that place; `MISSING` if there is none."""
    if isinstance(value, Attributed):
        if name.startswith("@"):
            return value.attributes.get(name[1:], MISSING) if name != "@" else value.attributes
        value = value.value
    if isinstance(value, dict):
        return value.get(name, MISSING)
    place = _place(value, name)
    return MISSING if place is None else value[place]


def put(target: Any, name: str, value: Any) -> bool:
    """Change a value in a map or a list. Returns whether there was such a place."""
    place: Any = name
    if isinstance(target, list) and name == END and value is not MISSING:
        target.append(value)
        return True
    if not isinstance(target, dict):
        place = _place(target, name)
    elif value is MISSING and name not in target:
        place = None
    if place is None:
        return False
    if value is MISSING:
        del target[place]
    else:
        target[place] = value
    return True


def _place(value: Any, name: str) -> int | None:
    """Return the place in a list to which an index leads, or None."""
    digits = name.removeprefix("-")
    if not isinstance(value, list) or not (digits.isascii() and digits.isdigit()):
        return None
    place = int(name) if len(digits) < 10 else len(value)
    return place if -len(value) <= place < len(value) else None
