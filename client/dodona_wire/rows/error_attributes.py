"""Convert the attributes of errors to JSON. Pure.

Owns: how a value of any type becomes JSON that mainly people read. The text forms of values of a
table are in `text_format`.
"""

from collections.abc import Mapping
from typing import Any

from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.logical_values import text_of_value
from dodona_wire.rows.text_format import format_any, format_bytes
from dodona_wire.shown import INTEGER_BITS_MAX, shown


def shown_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an error's attributes, mainly for people: bytes become text if possible."""
    return {str(name): _shown(value) for name, value in attributes.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return format_bytes(value)
    if isinstance(value, Mapping):
        return {str(name): _shown(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(it) for it in value]
    if isinstance(value, int) and value.bit_length() > INTEGER_BITS_MAX:
        return shown(value)
    value = text_of_value(value)
    if value is None or isinstance(value, str | int | float):
        return format_any(value)
    try:
        text = str(value)
    except Exception as error:  # a class may raise anything
        if is_of_handler(error):
            raise
        text = shown(value)
    return f"one {type(value).__name__}" if " object at 0x" in text else text
