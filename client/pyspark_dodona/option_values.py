"""Convert the text of options, which Spark passes, to Python values.

Owns: the parsers. Each takes the name and the text of an option, and raises InvalidRequest that
names both. Must not connect to a server. Knows neither Spark nor a table. So a caller that knows
the table checks the types of key values.
"""

import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from dodona import LoadTicket
from dodona.timestamps import check_plausible, timestamp_from_datetime
from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.json_text import object_of, place_of_repeated
from dodona_wire.types import MAX_TIMESTAMP, MIN_TIMESTAMP, NULL_TIMESTAMP, Timestamp

LATEST: Final = "latest"
EARLIEST: Final = "earliest"

_FLAGS: Final = {"true": True, "false": False}
_TIMES: Final = (
    f"an integer timestamp, '{LATEST}', or an RFC 3339 time such as 2026-01-31T23:59:59Z"
)
_KEY_RANGE: Final = """JSON such as {"lower": [1, "a"], "upper": [2]}"""

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys with lower ≤ key < upper: leading key values as in JSON. None means no bound."""

    lower: tuple[Any, ...] | None
    upper: tuple[Any, ...] | None


def ticket(name: str, given: str) -> LoadTicket:
    """Parse the ticket of a load, as `bulk_write` passes it."""
    try:
        return LoadTicket.from_text(given)
    except InvalidRequest as error:
        raise InvalidRequest(f"the option {name!r}: {error.message}") from error


def text(name: str, given: str) -> str:
    """Parse a text that is not empty."""
    if not given.strip():
        raise InvalidRequest(f"the option {name!r} is empty")
    return given


def names(name: str, given: str) -> tuple[str, ...]:
    """Parse names that are separated by commas."""
    found = tuple([it.strip() for it in given.split(",")])
    if not all(found):
        raise InvalidRequest(f"the option {name!r} takes names separated by commas, not {given!r}")
    return found


def flag(name: str, given: str) -> bool:
    """Parse `true` or `false`, in upper or lower case."""
    known = _FLAGS.get(given.strip().lower())
    if known is None:
        raise InvalidRequest(f"the option {name!r} takes 'true' or 'false', not {given!r}")
    return known


def flag_or_auto(name: str, given: str) -> bool | None:
    """Parse `true`, `false` or `auto`. Returns None for `auto`."""
    if given.strip().lower() == "auto":
        return None
    try:
        return flag(name, given)
    except InvalidRequest:
        what = "'true', 'false' or 'auto'"
        raise InvalidRequest(f"the option {name!r} takes {what}, not {given!r}") from None


def one_of(choices: Sequence[Choice]) -> Callable[[str, str], Choice]:
    """Return a parser that accepts these words, in upper or lower case."""
    listed = " or ".join(repr(it) for it in choices)

    def parse(name: str, given: str) -> Choice:
        for choice in choices:
            if given.strip().lower() == choice:
                return choice
        raise InvalidRequest(f"the option {name!r} takes {listed}, not {given!r}")

    return parse


def integer(least: int, greatest: int) -> Callable[[str, str], int]:
    """Return a parser that accepts integers in this range, both ends included."""

    def parse(name: str, given: str) -> int:
        stripped = given.strip()
        if not (stripped.isascii() and stripped.isdecimal()):
            raise InvalidRequest(f"the option {name!r} takes an integer, not {given!r}")
        # A longer text can't be in range, and Python refuses to parse thousands of digits.
        number = int(stripped) if len(stripped) <= len(str(greatest)) else greatest + 1
        if not least <= number <= greatest:
            what = f"takes an integer from {least} to {greatest}"
            raise InvalidRequest(f"the option {name!r} {what}, not {given!r}")
        return number

    return parse


def moment(name: str, given: str) -> Timestamp | None:
    """Parse a timestamp, as a number or as a time of day. Returns None for `latest`."""
    stripped = given.strip()
    if stripped.lower() == LATEST:
        return None
    if stripped.isascii() and stripped.isdecimal():
        if len(stripped) > len(str(MAX_TIMESTAMP)) or not (
            MIN_TIMESTAMP <= int(stripped) <= MAX_TIMESTAMP
        ):
            raise InvalidRequest(f"the option {name!r} is not a timestamp of the oracle: {given}")
        try:
            return check_plausible(int(stripped))
        except InvalidRequest as error:
            raise InvalidRequest(f"the option {name!r}: {error.message}") from None
    try:
        return timestamp_from_datetime(datetime.fromisoformat(stripped))
    except ValueError:
        raise InvalidRequest(f"the option {name!r} takes {_TIMES}, not {given!r}") from None
    except InvalidRequest as error:
        text = f"the option {name!r}: {error.message} The option takes {_TIMES}, not {given!r}"
        raise InvalidRequest(text) from None


def beginning(name: str, given: str) -> Timestamp | None:
    """Parse a timestamp as `moment` does. Returns NULL_TIMESTAMP for `earliest`."""
    return NULL_TIMESTAMP if given.strip().lower() == EARLIEST else moment(name, given)


def issued(name: str, given: str) -> Timestamp:
    """Parse a timestamp as `moment` does, but refuse `latest`."""
    found = moment(name, given)
    if found is None:
        raise InvalidRequest(f"the option {name!r} takes a timestamp or a time, not {given!r}")
    return found


def key_range(name: str, given: str) -> KeyRange:
    """Parse a range of keys in JSON. Bytes that are not UTF-8 are written as {"hex": "00ff"}."""
    try:
        found = json.loads(given, parse_constant=_refuse_constant, object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the option {name!r} takes {_KEY_RANGE}: {error}") from None
    if place := place_of_repeated(found):
        text = f"the option {name!r} takes {_KEY_RANGE}: {place[-1]!r} is named twice"
        raise InvalidRequest(text)
    is_object = isinstance(found, dict) and set(found) <= {"lower", "upper"}
    if not is_object or not all(isinstance(it, list) for it in found.values()):
        raise InvalidRequest(f"the option {name!r} takes {_KEY_RANGE}, not {given!r}")
    ends = {end: tuple([_key_value(name, it) for it in found[end]]) for end in found}
    return KeyRange(ends.get("lower"), ends.get("upper"))


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _key_value(name: str, value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"hex"} and isinstance(value["hex"], str):
        try:
            return binascii.unhexlify(value["hex"])
        except ValueError as error:
            raise InvalidRequest(f"the option {name!r}: {value['hex']!r} is {error}") from None
    if isinstance(value, list | dict):
        raise InvalidRequest(f"the option {name!r}: {value!r} is not a value of a key column")
    return value
