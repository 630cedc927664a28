"""Round days and moments down, in UTC: to the hour, the day, the week, the month and longer. Pure.

Owns: the calendar. A week begins on Monday, as in YTsaurus. The functions take whole numbers since
1970, single ones or arrays of numpy, and use only operators that both have.
"""

from typing import Any, Final

HOURS_PER_DAY: Final = 24
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
FLOORS: Final = {
    f"timestamp_floor_{it}": it for it in ("hour", "day", "week", "month", "quarter", "year")
}
"""By the name of a function, to what it rounds."""
_ERA_DAYS: Final = 146_097
"""Days of 400 years."""
_EPOCH_DAY: Final = 719_468
"""Days from 0000-03-01, where eras begin, to 1970-01-01."""


def floor_days(days: Any, to: str) -> Any:
    """Return the first day of the day's week, month, quarter or year, as days since 1970."""
    if to == "week":
        return days - (days + 3) % 7  # day 0 is a Thursday
    year, month = _year_and_month(days)
    months = _MONTHS[to]
    return _first_day(year, (month - 1) // months * months + 1)


def _year_and_month(days: Any) -> tuple[Any, Any]:
    """Return the year and the month (1 to 12). Years are counted from March, so that the day that
    only some years have is their last."""
    since = days + _EPOCH_DAY
    era, of_era = since // _ERA_DAYS, since % _ERA_DAYS
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    month = (from_march + 2) % 12 + 1
    return year + era * 400 + (month <= 2), month


def _first_day(year: Any, month: Any) -> Any:
    year = year - (month <= 2)
    era, of_era = year // 400, year % 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5
    return era * _ERA_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAY
