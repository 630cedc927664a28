"""Moments in the console: as they are shown, and as people choose them.

Owns: the spelling, which is UTC throughout, and the reading of "as of": now, a time or a
timestamp.
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
    """What was chosen, as it was written, and what it means; None is now."""

    choice: Choice
    text: str
    timestamp: Timestamp | None


def read_as_of(fields: Mapping[str, str]) -> AsOf:
    """Of a form's fields. Raises InvalidRequest."""
    choice = fields.get("as_of", "now")
    if choice == "time":
        text = fields.get("time", "").strip()
        return AsOf("time", text, timestamp_from_datetime(_moment(text)))
    if choice == "timestamp":
        text = fields.get("timestamp", "").strip()
        if _number.fullmatch(text) is None:
            raise InvalidRequest(f"a timestamp is a whole number of 64 bits, not {text[:40]!r}")
        datetime_from_timestamp(int(text))  # says what is none
        return AsOf("timestamp", text, check_plausible(int(text)))
    if choice != "now":
        raise InvalidRequest("as_of is now, time or timestamp")
    return AsOf("now", "", None)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(f"{text[:40]!r} is no time such as 2026-07-01T12:00:00") from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def show_moment(unix_us: int) -> str:
    """`2026-07-01 12:00:00`."""
    return f"{datetime.fromtimestamp(unix_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def show_clock(unix_us: int) -> str:
    """`12:00:00`."""
    return f"{datetime.fromtimestamp(unix_us / 1e6, UTC):%H:%M:%S}"


def show_time_of(timestamp: int) -> str:
    """About when a timestamp was made, or nothing where it stands for no time."""
    try:
        return f"{datetime_from_timestamp(timestamp):%Y-%m-%d %H:%M:%S}"
    except (InvalidRequest, OverflowError):
        return ""


def for_picker(timestamp: int) -> str:
    """As a browser's field for a time takes it."""
    return show_time_of(timestamp).replace(" ", "T")
