"""Define the demonstration's tables: their paths, schemas and tablets.

Owns: `flights` (bulk-loaded, not atomic), `carrier_day` (the totals) and `posted` (a marker row for
each posted batch, written by the same transaction). Knows no transport: `create_tables` takes any
database.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final

import dodona
from dodona_local.demo_data import FLIGHT_COLUMNS, Batch
from dodona_wire.rows.schema import Column
from dodona_wire.types import Atomicity

FLIGHTS: Final = "//nyc13/flights"
CARRIER_DAY: Final = "//nyc13/carrier_day"
POSTED: Final = "//nyc13/posted"

TOTALS_COLUMNS: Final = tuple(
    Column(name, "int64", required=True) for name in ("flights", "landed", "minutes")
)
CARRIER_DAY_COLUMNS: Final = (
    Column("carrier", "utf8", "ascending", required=True),
    Column("day", "utf8", "ascending", required=True),
    *TOTALS_COLUMNS,
)
POSTED_COLUMNS: Final = (
    Column("batch", "int64", "ascending", required=True),
    *TOTALS_COLUMNS,
    Column("transaction", "uint64", required=True),
)
BATCHES_EXPECTED: Final = 7_000
"""A hint for the pivot key that cuts `posted` in two."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to create. `pivot_keys` says where each tablet begins."""

    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    pivot_keys: tuple[tuple[Any, ...], ...]


TABLES: Final = (
    TableSpec(FLIGHTS, FLIGHT_COLUMNS, "none", ((), ("2013-04",), ("2013-07",), ("2013-10",))),
    TableSpec(CARRIER_DAY, CARRIER_DAY_COLUMNS, "full", ((), ("F",))),
    TableSpec(POSTED, POSTED_COLUMNS, "full", ((), (BATCHES_EXPECTED // 2,))),
)


def create_tables(db: dodona.Client) -> None:
    """Create and mount all three tables."""
    for table in TABLES:
        db.create_table(
            table.path,
            schema=table.columns,
            atomicity=table.atomicity,
            pivot_keys=table.pivot_keys,
            mount=True,
        )


class CarrierCells:
    """The cells that serve the totals of each carrier."""

    def __init__(self, table: dodona.TableInfo) -> None:
        self._first_carriers = [tablet.pivot_key[0] for tablet in table.tablets[1:]]
        self._cells = [tablet.cell for tablet in table.tablets]

    def of(self, batch: Batch) -> set[int | None]:
        """Return the cells whose rows a batch changes."""
        places = (bisect_right(self._first_carriers, carrier) for carrier, _ in batch.totals)
        return {self._cells[place] for place in places}
