"""Convert timestamps to times of day and back, within about a second.

Owns: how a timestamp becomes a datetime with a time zone, and the reverse. Reads no clock.
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
"""The first timestamp of 1971. A number of days, or of seconds, milliseconds or microseconds since
1970, is smaller. No oracle has a clock so early."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SOME_DAY: Final = "2026-07-01"
_MICROSECOND: Final = timedelta(microseconds=1)


def datetime_from_timestamp(timestamp: int) -> datetime:
    """Return the time in UTC when the oracle made a timestamp, within about a second. Raises
    InvalidRequest."""
    if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise InvalidRequest(f"Invalid timestamp {shown(timestamp)}")
    return _EPOCH + unix_us_from_timestamp(Timestamp(timestamp)) * _MICROSECOND


def check_plausible(timestamp: int) -> Timestamp:
    """Return a number from a user as a timestamp. Raises InvalidRequest if it stands for a time
    before 1971: the user surely meant another unit. A read at that time would find nothing, and
    raise no error."""
    if MIN_TIMESTAMP <= timestamp < PLAUSIBLE_MIN:
        moment = datetime_from_timestamp(timestamp)
        text = (
            f"No oracle issued timestamp {timestamp} (its time is {moment:%Y-%m-%d %H:%M:%S}). "
            f"Write a time with a time zone, such as {_day_of(str(timestamp))}T00:00:00Z."
        )
        raise InvalidRequest(text, timestamp=timestamp)
    return Timestamp(timestamp)


def _day_of(digits: str) -> str:
    """Return the date that the digits begin with if it is after 1970, else an example date."""
    try:
        day = date.fromisoformat(digits[:8])
    except ValueError:
        return _SOME_DAY
    return day.isoformat() if day.year > _EPOCH.year else _SOME_DAY


def timestamp_from_datetime(moment: datetime) -> Timestamp:
    """Return the first timestamp of the microsecond that `moment` is in. Raises InvalidRequest if
    `moment` has no time zone."""
    if not isinstance(moment, datetime):
        raise InvalidRequest(f"`moment` must be a datetime, not {type(moment).__name__}.")
    if moment.tzinfo is None:
        raise InvalidRequest("The datetime has no time zone. Pass one that has a time zone.")
    timestamp = timestamp_from_unix_us(max(0, (moment - _EPOCH) // _MICROSECOND))
    if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise InvalidRequest(f"{moment} is outside the range of timestamps.")
    return timestamp
