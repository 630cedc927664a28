"""What a client tells its user about a table. Frozen, without behaviour.

Owns: the translation of a catalog entry into the user's words: key values instead of encoded keys.
"""

from typing import Any

import msgspec

from dodona._core.messages import Table, Tablet
from dodona.errors import DataCorrupted
from dodona.keys import decode_key
from dodona.schema import TableSchema
from dodona.types import Atomicity, CellId, Key, Revision, TabletId


class TabletInfo(msgspec.Struct, frozen=True):
    """One tablet. `pivot_key` holds the leading key column values that it begins at: it goes on
    to the next tablet's. `state` is unmounted, mounting, mounted or unmounting."""

    tablet: TabletId
    pivot_key: tuple[Any, ...]
    state: str
    cell: CellId | None
    revision: Revision


class TableInfo(msgspec.Struct, frozen=True):
    """A table as the master knew it at one moment."""

    path: str
    schema: TableSchema
    atomicity: Atomicity
    tablets: tuple[TabletInfo, ...]

    @property
    def is_mounted(self) -> bool:
        """Whether all tablets are served."""
        return all(tablet.state == "mounted" for tablet in self.tablets)


def describe(table: Table) -> TableInfo:
    """A catalog entry in the user's words."""
    schema = TableSchema(table.columns)
    tablets = tuple([_describe_tablet(schema, it) for it in table.tablets])
    return TableInfo(table.path, schema, table.atomicity, tablets)


def _describe_tablet(schema: TableSchema, tablet: Tablet) -> TabletInfo:
    return TabletInfo(
        tablet.tablet,
        decode_prefix(tablet.pivot_key, schema.key_types),
        tablet.state,
        tablet.cell,
        tablet.revision,
    )


def decode_prefix(key: Key, types: tuple[str, ...]) -> tuple[Any, ...]:
    """The values of an encoded key that may lack trailing columns. Raises DataCorrupted."""
    for count in range(len(types)):
        try:
            return decode_key(key, types[:count])
        except DataCorrupted:
            continue
    return decode_key(key, types)
