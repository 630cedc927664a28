"""What is inside an attribute's value, by the names and places of a path. Pure.

Owns: the steps, for looking and for changing. In a map a step is a name, in a list a place (`0`, or
`-1` from its end), behind a value `@name` an attribute of it.
"""

from typing import Any, Final

from dodona_gateway.core.yson import Attributed

MISSING: Final = object()
"""Is nowhere; as what to put somewhere, what is there goes."""
END: Final = "end"
"""Where a list takes another item."""


def inside(value: Any, name: str) -> Any:
    """What a value has by that name, or at that place; `MISSING` if it has none."""
    if isinstance(value, Attributed):
        if name.startswith("@"):
            return value.attributes.get(name[1:], MISSING) if name != "@" else value.attributes
        value = value.value
    if isinstance(value, dict):
        return value.get(name, MISSING)
    place = _place(value, name)
    return MISSING if place is None else value[place]


def put(target: Any, name: str, value: Any) -> bool:
    """Change what a map or a list has there. → whether there was such a place."""
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
    """Where in a list an index leads, None if nowhere."""
    digits = name.removeprefix("-")
    if not isinstance(value, list) or not (digits.isascii() and digits.isdigit()):
        return None
    place = int(name) if len(digits) < 10 else len(value)
    return place if -len(value) <= place < len(value) else None
