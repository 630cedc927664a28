"""Show and read times in the console.

Owns: the format, which is UTC everywhere, and the reading of "as of": now, a time or a timestamp.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from dodona.timestamps import check_plausible, datetime_from_timestamp, timestamp_from_datetime
from dodona_wire.errors import InvalidRequest
from dodona_wire.types import Timestamp

NUMBER_LENGTH_MAX: Final = 20
_number: Final = re.compile(rf"[0-9]{{1,{NUMBER_LENGTH_MAX}}}", re.ASCII)

Choice = Literal["now", "time", "timestamp"]


class AsOf(NamedTuple):
    """A choice, its text as it was written, and its timestamp; None is now."""

    choice: Choice
    text: str
    timestamp: Timestamp | None


def read_as_of(fields: Mapping[str, str]) -> AsOf:
    """Read the choice from a form's fields. Raises InvalidRequest."""
    choice = fields.get("as_of", "now")
    if choice == "time":
        text = fields.get("time", "").strip()
        return AsOf("time", text, timestamp_from_datetime(_moment(text)))
    if choice == "timestamp":
        text = fields.get("timestamp", "").strip()
        if _number.fullmatch(text) is None:
            raise InvalidRequest(f"A timestamp is a whole number of 64 bits, not {text[:40]!r}.")
        datetime_from_timestamp(int(text))  # raises for a number that is no timestamp
        return AsOf("timestamp", text, check_plausible(int(text)))
    if choice != "now":
        raise InvalidRequest("The field as_of must be now, time or timestamp.")
    return AsOf("now", "", None)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{text[:40]!r} is not a time. Write a time such as 2026-07-01T12:00:00."
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def show_moment(unix_us: int) -> str:
    """Return a time as `2026-07-01 12:00:00`."""
    return f"{datetime.fromtimestamp(unix_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def show_clock(unix_us: int) -> str:
    """Return a time as `12:00:00`."""
    return f"{datetime.fromtimestamp(unix_us / 1e6, UTC):%H:%M:%S}"


def show_time_of(timestamp: int) -> str:
    """Return the approximate time of a timestamp, or an empty text if the number has no time."""
    try:
        return f"{datetime_from_timestamp(timestamp):%Y-%m-%d %H:%M:%S}"
    except (InvalidRequest, OverflowError):
        return ""


def for_picker(timestamp: int) -> str:
    """Return the time as a browser's field for times needs it."""
    return show_time_of(timestamp).replace(" ", "T")
