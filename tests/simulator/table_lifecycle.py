"""What an operator does to whole tables: copies them, alters their schema, makes and removes them.

Owns: how a copy is judged: nothing is committed to an unmounted table, so what the copy has is the
table's state at any timestamp taken meanwhile, and a snapshot like any other. And how a table is
judged that was made in the place of another: it has the rows that were written to it and no others.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

from dodona._core.catalog.tables import TableInfo
from dodona._core.protocol.routing import UNMOUNTED
from dodona._core.protocol.steps import Protocol
from dodona.errors import DodonaError
from dodona.schema import Column
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape

SCRATCH_COLUMNS: Final = (Column("k", "int64", sort_order="ascending"), Column("v", "utf8"))
SCRATCH_KEYS: Final = 8


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


def try_out(db: Recorder, path: str) -> Protocol[list[Violation] | None]:
    """Make a table where another may be, write to it, divide it anew, look, and remove it. → what
    is wrong with it; None if somebody's late request put yet another one there meanwhile."""
    catalog, dice = db.session.catalog, db.random
    yield from catalog.remove(path, force=True)
    yield from catalog.create_table(path, SCRATCH_COLUMNS, mount=True)
    identity = yield from catalog.get(f"{path}/@id")
    written = yield from _write_some(db, path)
    if dice.random() < 0.5:
        pivots = sorted(dice.sample(range(SCRATCH_KEYS), dice.randrange(3)))
        yield from catalog.unmount_table(path)
        yield from catalog.reshard_table(path, [(), *[(pivot,) for pivot in pivots]])
        yield from catalog.mount_table(path)
    rows = yield from db.session.select(path)
    is_this = identity == (yield from catalog.get(f"{path}/@id"))
    if dice.random() < 0.5:
        yield from catalog.unmount_table(path)
    yield from catalog.remove_table(path)
    return _wrong(path, written, {row["k"]: row["v"] for row in rows}) if is_this else None


def _write_some(db: Recorder, path: str) -> Protocol[dict[int, tuple[str, bool]]]:
    """A value for some keys, each once. → key → the value, and whether it surely was written."""
    written: dict[int, tuple[str, bool]] = {}
    for key in db.random.sample(range(SCRATCH_KEYS), 4):
        value = db.unique_value()
        try:
            row = {"k": key, "v": value}
            yield from db.session.write_rows(path, [row], update=False, durability="sync")
        except DodonaError:
            written[key] = (value, False)
        else:
            written[key] = (value, True)
    return written


def _wrong(
    path: str, written: Mapping[int, tuple[str, bool]], found: Mapping[int, str]
) -> list[Violation]:
    lost = [key for key, (_, is_sure) in written.items() if is_sure and key not in found]
    foreign = [key for key, value in found.items() if written.get(key, ("",))[0] != value]
    wrong = [Violation("DURABILITY", f"row {key} of {path} is not there") for key in lost]
    return wrong + [Violation("GHOST", f"row {key} of {path} is another's") for key in foreign]
