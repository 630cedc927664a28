"""Timestamps and the times of day that they stand for, within about a second.

Owns: the translation to and from aware datetimes. Reads no clock.
"""

from datetime import UTC, date, datetime, timedelta
from typing import Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown
from dodona_wire.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Timestamp,
    timestamp_from_unix_us,
    unix_us_from_timestamp,
)

PLAUSIBLE_MIN: Final = timestamp_from_unix_us(365 * 86_400 * 1_000_000)
"""The first of 1971. Days written as numbers, and seconds, milliseconds and microseconds since 1970
are below it if they are taken for timestamps, and no oracle has a clock like that."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SOME_DAY: Final = "2026-07-01"
_MICROSECOND: Final = timedelta(microseconds=1)


def datetime_from_timestamp(timestamp: int) -> datetime:
    """About when the oracle made it, in UTC. Raises InvalidRequest."""
    if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise InvalidRequest(f"Invalid timestamp {shown(timestamp)}")
    return _EPOCH + unix_us_from_timestamp(Timestamp(timestamp)) * _MICROSECOND


def check_plausible(timestamp: int) -> Timestamp:
    """A number that a person wrote. Raises InvalidRequest for one that is a timestamp, but surely
    meant otherwise: a read as of then would find nothing, and say nothing."""
    if MIN_TIMESTAMP <= timestamp < PLAUSIBLE_MIN:
        moment = datetime_from_timestamp(timestamp)
        text = (
            f"the number {timestamp} is a timestamp of {moment:%Y-%m-%d %H:%M:%S}, of which no "
            "oracle gave any: write a time with its zone, a day as "
            f"{_day_of(str(timestamp))}T00:00:00Z"
        )
        raise InvalidRequest(text, timestamp=timestamp)
    return Timestamp(timestamp)


def _day_of(digits: str) -> str:
    """The day of our time that digits begin with, or one for an example."""
    try:
        day = date.fromisoformat(digits[:8])
    except ValueError:
        return _SOME_DAY
    return day.isoformat() if day.year > _EPOCH.year else _SOME_DAY


def timestamp_from_datetime(moment: datetime) -> Timestamp:
    """The first timestamp of that microsecond. Raises InvalidRequest without a time zone."""
    if not isinstance(moment, datetime):
        raise InvalidRequest(f"a moment is a datetime, not {type(moment).__name__}")
    if moment.tzinfo is None:
        raise InvalidRequest("a datetime without a time zone names no moment")
    timestamp = timestamp_from_unix_us(max(0, (moment - _EPOCH) // _MICROSECOND))
    if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise InvalidRequest(f"no timestamp stands for {moment}")
    return timestamp
