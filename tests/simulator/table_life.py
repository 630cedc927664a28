"""What an operator does to a whole table that is unmounted: copies it, and alters its schema.

Owns: how a copy is judged: nothing is committed to an unmounted table, so what the copy has is the
table's state at any timestamp taken meanwhile, and a snapshot like any other.
"""

from random import Random

from dodona._core.routing import UNMOUNTED
from dodona._core.steps import Protocol
from dodona._core.tables import TableInfo
from dodona.errors import DodonaError
from dodona.schema import Column
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape


def reorder(db: Recorder, table: TableShape) -> Protocol[None]:
    """The same value columns in another order: all rows are translated at the next mount, and
    nobody's words for them change."""
    columns = _shuffled(db.random, table)
    yield from db.session.catalog.alter_table(table.path, columns)


def _shuffled(random: Random, table: TableShape) -> list[Column]:
    values = table.value_columns
    return [*table.key_columns, *random.sample(values, len(values))]


def copy(db: Recorder, table: TableShape, path: str) -> Protocol[bool]:
    """Copy an unmounted table, look at the copy, and remove it. → whether that says anything: not
    if the table was mounted meanwhile."""
    catalog = db.session.catalog
    before = yield from catalog.get_table(table.path)
    yield from catalog.copy(table.path, path, recursive=True)
    try:
        is_still = yield from _look(db, table, path, before)
    except DodonaError:
        yield from catalog.remove_table(path)
        raise
    yield from catalog.remove_table(path)
    return is_still


def _look(db: Recorder, table: TableShape, path: str, before: TableInfo) -> Protocol[bool]:
    yield from db.session.catalog.mount_table(path)
    attempt = yield from db.begin()
    try:
        yield from attempt.scan(table, copy=path)
        after = yield from db.session.catalog.get_table(table.path)
    except DodonaError as error:
        attempt.record.scans.clear()
        attempt.give_up(error)
        raise
    is_still = after.tablets == before.tablets
    is_still = is_still and all(tablet.state == UNMOUNTED for tablet in after.tablets)
    if not is_still:
        attempt.record.scans.clear()
    attempt.end()
    return is_still
