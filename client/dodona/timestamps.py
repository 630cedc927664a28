"""Timestamps and the times of day that they stand for, within about a second.

Owns: the translation to and from aware datetimes. Reads no clock.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from dodona.errors import InvalidRequest
from dodona.shown import shown
from dodona.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Timestamp,
    timestamp_from_unix_us,
    unix_us_from_timestamp,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def datetime_from_timestamp(timestamp: int) -> datetime:
    """About when the oracle made it, in UTC. Raises InvalidRequest."""
    if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise InvalidRequest(f"Invalid timestamp {shown(timestamp)}")
    return _EPOCH + unix_us_from_timestamp(Timestamp(timestamp)) * _MICROSECOND


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
