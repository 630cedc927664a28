"""Make up a year of flights, for a demonstration without the package of the real ones.

Owns: the carriers and the numbers, which are the same in each run. The flights have the columns of
the real ones, their absent values, and more flights in busy hours. Knows no database.
"""

from collections.abc import Sequence
from typing import Any, Final

from dodona_wire.rows.schema import Column

SEED: Final = 2013
FLIGHTS_MADE_UP: Final = 60_000
"""A number that one process posts in seconds."""

CARRIERS: Final = {
    "AZ": ("Azimuth", 0.22),
    "CU": ("Cumulus Air", 0.19),
    "EQ": ("Equator Lines", 0.16),
    "GL": ("Glide Airways", 0.15),
    "HZ": ("Horizon Shuttle", 0.12),
    "MR": ("Meridian", 0.09),
    "TW": ("Tailwind Express", 0.06),
    "ZP": ("Zephyr", 0.01),
}
"""By code: the name, and the share of the flights. They are on both sides of the pivot key."""

PLACES: Final = {"ALB": 136, "BNA": 765, "DFW": 1380, "MIA": 1090, "ORD": 730, "SEA": 2410}
"""Where flights go, and how far that is in miles."""

HOURS: Final = (5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21)
ORIGINS: Final = ("EWR", "JFK", "LGA")
CANCELLED_SHARE: Final = 0.025
MILES_PER_MINUTE: Final = 7.5
FIRST_DAY: Final = "2013-01-01"
DAYS: Final = 365


def made_up_flights(columns: Sequence[Column]) -> Any:
    """Return the flights as a `pyarrow.Table` with these columns."""
    import pyarrow

    found = _columns()
    types = {"utf8": pyarrow.string(), "int64": pyarrow.int64()}
    return pyarrow.table({it.name: found[it.name].cast(types[it.type]) for it in columns})


def made_up_names() -> dict[str, str]:
    """Return names by carrier code."""
    return {code: name for code, (name, _) in CARRIERS.items()}


def _columns() -> dict[str, Any]:
    """Return all columns as Arrow arrays, in the order of time."""
    import numpy
    import pyarrow

    draw = numpy.random.default_rng(SEED)
    count = FLIGHTS_MADE_UP
    minute_of_day = draw.choice(HOURS, count) * 60 + draw.integers(0, 60, count)
    minute_of_year = numpy.sort(draw.integers(0, DAYS, count) * 1440 + minute_of_day)
    due = numpy.datetime64(FIRST_DAY, "m") + minute_of_year
    places = draw.integers(0, len(PLACES), count)
    miles = numpy.array([*PLACES.values()])[places]
    air_min = (miles / MILES_PER_MINUTE).astype("int64") + draw.integers(-9, 15, count)
    dep_delay = (draw.gamma(0.6, 30.0, count) - 8).astype("int64")
    arr_delay = dep_delay + draw.integers(-25, 21, count)
    is_cancelled = draw.random(count) < CANCELLED_SHARE

    def unless_cancelled(values: Any) -> Any:
        return pyarrow.array(values, mask=is_cancelled)

    return {
        **_times("dep", due, dep_delay, unless_cancelled),
        **_times("arr", due + air_min + 30, arr_delay, unless_cancelled),
        **_calendar(due),
        "carrier": _named([*CARRIERS], draw.choice(len(CARRIERS), count, p=_shares())),
        "flight": pyarrow.array(numpy.arange(1, count + 1)),
        "tailnum": _named([f"N{it}DO" for it in range(100, 400)], draw.integers(0, 300, count)),
        "origin": _named(ORIGINS, draw.integers(0, len(ORIGINS), count)),
        "dest": _named([*PLACES], places),
        "distance": pyarrow.array(miles),
        "air_time": unless_cancelled(air_min),
    }


def _shares() -> list[float]:
    return [share for _, share in CARRIERS.values()]


def _named(names: Sequence[str], places: Any) -> Any:
    import pyarrow

    return pyarrow.array(names).take(pyarrow.array(places))


def _times(name: str, due: Any, delay: Any, unless_cancelled: Any) -> dict[str, Any]:
    """Return when a flight was due, when it came, and the delay in minutes. 517 is 5:17."""
    import pyarrow

    return {
        f"sched_{name}_time": pyarrow.array(_clock(due)),
        f"{name}_time": unless_cancelled(_clock(due + delay)),
        f"{name}_delay": unless_cancelled(delay),
    }


def _clock(moments: Any) -> Any:
    minutes = (moments - moments.astype("datetime64[D]")).astype("int64")
    return minutes // 60 * 100 + minutes % 60


def _calendar(due: Any) -> dict[str, Any]:
    """Return the parts of the time at which each flight was due."""
    import pyarrow
    import pyarrow.compute as pc

    moments = pyarrow.array(due.astype("datetime64[s]"))
    parts = ("year", "month", "day", "hour", "minute")
    return {
        "time_hour": pc.strftime(moments, format="%Y-%m-%dT%H:00:00Z"),
        **{part: getattr(pc, part)(moments) for part in parts},
    }
