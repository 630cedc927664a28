"""Chunks in an object store: uploads, the records that name chunks, cuts, compaction, orphans.

Owns: R26 to R29 and the part of R24 about chunks. Their promise: an owner that serves finds each
acknowledged row in its log, or in a chunk that its log names. The log is abstract here: a successor
finds what is acknowledged, and any part of the rest.

PUT and DELETE are facts, as messages are. The store may apply one at any later time, again and
again, or never. An owner that has lost the document goes on with uploads and deletions. Must not
import: the replicated log.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replication_model.step import Step

Name = tuple[int, int]
"""An epoch and a counter. There is one cell only (R30)."""
Rows = tuple[int, ...]


class Attach(Struct, frozen=True, gc=False):
    """A record: a chunk has these rows."""

    name: Name
    rows: Rows


class Swap(Struct, frozen=True, gc=False):
    """A record: a new chunk takes the place of an old one."""

    old: Name
    new: Name


Record = int | Attach | Swap
"""A number is a row."""
Records = tuple[Record, ...]


class Put(Struct, frozen=True, gc=False, order=True):
    """A sent PUT, or what is in the store."""

    name: Name
    rows: Rows


class Keeper(Struct, frozen=True, gc=False):
    """An owner of the cell."""

    epoch: int
    log: Records
    acknowledged: int
    is_open: bool
    """Its opening record is acknowledged."""
    answered: tuple[Name, ...] = ()
    sent_count: int = 0

    @property
    def acknowledged_log(self) -> Records:
        return self.log[: self.acknowledged]


class Bucket(Struct, frozen=True, gc=False):
    """All of it: the document, the cell's log, the object store, what is under way, owners."""

    epoch: int
    acknowledged: Records
    tail: Records
    """What the newest owner has appended besides."""
    cut: int
    """Rows up to this one are not in the log any more."""
    stored: tuple[Put, ...]
    puts: tuple[Put, ...]
    deletes: tuple[Name, ...]
    keepers: tuple[Keeper, ...]

    def with_keeper(self, at: int, keeper: Keeper) -> "Bucket":
        return replace(self, keepers=(*self.keepers[:at], keeper, *self.keepers[at + 1 :]))


def in_use(log: Records) -> dict[Name, Rows]:
    """Return the chunks that a log names, with their rows."""
    found: dict[Name, Rows] = {}
    for record in log:
        if isinstance(record, Attach):
            found[record.name] = record.rows
        elif isinstance(record, Swap):
            found[record.new] = found.pop(record.old, ())
    return found


def rows_of(log: Records) -> list[int]:
    return [it for it in log if isinstance(it, int)]


def names_of(log: Records) -> set[Name]:
    """Return every name that a log has ever given to a chunk."""
    attached = {it.name for it in log if isinstance(it, Attach)}
    return attached | {it.new for it in log if isinstance(it, Swap)}


FIRST: Final = Bucket(1, (), (), 0, (), (), (), (Keeper(1, (), 0, True),))


class ChunkModel:
    """Chunks as they are designed. A planted bug is a subclass."""

    def __init__(self, epoch_count: int = 3, row_count: int = 1, name_count: int = 1) -> None:
        self.epoch_count = epoch_count
        self.row_count = row_count
        self.name_count = name_count
        """Uploads of each owner."""

    @property
    def title(self) -> str:
        return (
            f"chunks: {self.epoch_count} epochs, {self.row_count} rows, {self.name_count} uploads"
        )

    # ---- decisions

    def epoch_in_name(self, keeper: Keeper) -> int:
        """R26."""
        return keeper.epoch

    def taken_names(self, log: Records) -> set[Name]:
        """Names that no record may give to a chunk again (R26)."""
        return names_of(log)

    def may_record(self, is_answered: bool) -> bool:
        """R27."""
        return is_answered

    def log_to_cut_by(self, keeper: Keeper) -> Records:
        """R24."""
        return keeper.acknowledged_log

    def log_to_delete_by(self, keeper: Keeper) -> Records:
        """R28."""
        return keeper.acknowledged_log

    def may_collect(self, keeper: Keeper) -> bool:
        """R29."""
        return keeper.is_open

    def may_be_orphan(self, name: Name, keeper: Keeper) -> bool:
        """R29."""
        return 0 < name[0] < keeper.epoch

    def used_names(self, keeper: Keeper) -> set[Name]:
        """Names that no collection may delete (R29)."""
        return {*in_use(keeper.acknowledged_log), *in_use(keeper.log)}

    def extra(self, state: Bucket, at: int) -> Iterator[Step[Bucket]]:
        """Return steps that only a broken owner has."""
        yield from ()

    # ---- steps

    def first(self) -> Bucket:
        return FIRST

    def steps(self, state: Bucket) -> Iterator[Step[Bucket]]:
        yield from self._take_over(state)
        yield from self._apply(state)
        for at, keeper in enumerate(state.keepers):
            yield from self._acknowledge(state, at, keeper)
            if keeper.is_open and len(keeper.log) <= keeper.acknowledged + 1:
                yield from self._write(state, at, keeper)
                yield from self._upload(state, at, keeper)
                yield from self._record(state, at, keeper)
                yield from self._cut(state, keeper)
                yield from self._delete_replaced(state, keeper)
                yield from self.extra(state, at)
            if self.may_collect(keeper):
                yield from self._collect(state, keeper)

    def _take_over(self, state: Bucket) -> Iterator[Step[Bucket]]:
        if len(state.keepers) >= self.epoch_count:
            return
        epoch = state.epoch + 1
        for count in range(len(state.tail) + 1):
            log = state.acknowledged + state.tail[:count]
            keeper = Keeper(epoch, log, len(state.acknowledged), False)
            after = replace(state, epoch=epoch, keepers=(*state.keepers, keeper))
            details = (epoch, count)
            yield Step("epoch {} takes over, with {} records of the tail", details, after)

    def _apply(self, state: Bucket) -> Iterator[Step[Bucket]]:
        for put in state.puts:
            if put not in state.stored:
                others = [it for it in state.stored if it.name != put.name]
                after = replace(state, stored=tuple(sorted([*others, put])))
                yield Step("the store has {}.{}", put.name, after)
        for name in state.deletes:
            others = [it for it in state.stored if it.name != name]
            if len(others) < len(state.stored):
                yield Step("the store deletes {}.{}", name, replace(state, stored=tuple(others)))

    def _acknowledge(self, state: Bucket, at: int, keeper: Keeper) -> Iterator[Step[Bucket]]:
        has_more = not keeper.is_open or len(keeper.log) > keeper.acknowledged
        if keeper.epoch == state.epoch and has_more:
            opened = replace(keeper, acknowledged=len(keeper.log), is_open=True)
            known = replace(state, acknowledged=keeper.log, tail=())
            yield Step(
                "epoch {} has all acknowledged", (keeper.epoch,), known.with_keeper(at, opened)
            )

    def _appended(self, state: Bucket, at: int, keeper: Keeper, record: Record) -> Bucket:
        """What an older owner appends is never found."""
        log = (*keeper.log, record)
        after = state.with_keeper(at, replace(keeper, log=log))
        if keeper.epoch != state.epoch:
            return after
        return replace(after, tail=log[len(state.acknowledged) :])

    def _write(self, state: Bucket, at: int, keeper: Keeper) -> Iterator[Step[Bucket]]:
        is_idle = len(keeper.log) == keeper.acknowledged
        row = max(rows_of(keeper.log), default=0) + 1
        if keeper.epoch == state.epoch and is_idle and row <= self.row_count:
            after = self._appended(state, at, keeper, row)
            yield Step("epoch {} writes row {}", (keeper.epoch, row), after)

    def _contents(self, keeper: Keeper) -> list[Rows]:
        """What an upload may have: rows that no chunk has, or those of a chunk to compact."""
        used = in_use(keeper.log)
        return sorted({self._fresh_rows(keeper), *used.values()} - {()})

    def _fresh_rows(self, keeper: Keeper) -> Rows:
        held = {row for rows in in_use(keeper.log).values() for row in rows}
        return tuple(it for it in rows_of(keeper.log) if it not in held)

    def _upload(self, state: Bucket, at: int, keeper: Keeper) -> Iterator[Step[Bucket]]:
        count = keeper.sent_count + 1
        if count > self.name_count:
            return
        name = (self.epoch_in_name(keeper), count)
        for rows in self._contents(keeper):
            puts = tuple(sorted({*state.puts, Put(name, rows)}))
            after = replace(state, puts=puts).with_keeper(at, replace(keeper, sent_count=count))
            yield Step("epoch {} sends PUT {}.{}", (keeper.epoch, *name), after)

    def _record(self, state: Bucket, at: int, keeper: Keeper) -> Iterator[Step[Bucket]]:
        taken = self.taken_names(keeper.log)
        for put in state.puts:
            if put.name[0] != self.epoch_in_name(keeper) or put.name in taken:
                continue
            is_answered = put.name in keeper.answered
            if not is_answered and put in state.stored:
                heard = replace(keeper, answered=(*keeper.answered, put.name))
                details = (keeper.epoch, *put.name)
                yield Step("epoch {}: PUT {}.{} is answered", details, state.with_keeper(at, heard))
            if self.may_record(is_answered) and len(keeper.log) == keeper.acknowledged:
                yield from self._name(state, at, keeper, put)

    def _name(self, state: Bucket, at: int, keeper: Keeper, put: Put) -> Iterator[Step[Bucket]]:
        details = (keeper.epoch, *put.name)
        if put.rows == self._fresh_rows(keeper):
            after = self._appended(state, at, keeper, Attach(put.name, put.rows))
            yield Step("epoch {} attaches {}.{}", details, after)
        for old, rows in in_use(keeper.log).items():
            if rows == put.rows and old != put.name:
                after = self._appended(state, at, keeper, Swap(old, put.name))
                yield Step("epoch {} puts {}.{} in the place of {}.{}", (*details, *old), after)

    def _cut(self, state: Bucket, keeper: Keeper) -> Iterator[Step[Bucket]]:
        chunks = in_use(self.log_to_cut_by(keeper)).values()
        newest = max((row for rows in chunks for row in rows), default=0)
        if newest > state.cut and keeper.epoch == state.epoch:
            after = replace(state, cut=newest)
            yield Step("epoch {} cuts the log up to row {}", (keeper.epoch, newest), after)

    def _delete_replaced(self, state: Bucket, keeper: Keeper) -> Iterator[Step[Bucket]]:
        for record in self.log_to_delete_by(keeper):
            if isinstance(record, Swap) and record.old not in state.deletes:
                after = self.deleted(state, record.old)
                yield Step("epoch {} deletes {}.{}", (keeper.epoch, *record.old), after)

    def _collect(self, state: Bucket, keeper: Keeper) -> Iterator[Step[Bucket]]:
        used = self.used_names(keeper)
        for put in state.stored:
            is_new = put.name not in used and put.name not in state.deletes
            if is_new and self.may_be_orphan(put.name, keeper):
                after = self.deleted(state, put.name)
                yield Step("epoch {} deletes the orphan {}.{}", (keeper.epoch, *put.name), after)

    def deleted(self, state: Bucket, name: Name) -> Bucket:
        return replace(state, deletes=tuple(sorted({*state.deletes, name})))

    # ---- the promise

    def violation(self, state: Bucket) -> str | None:
        newest = state.keepers[-1]
        if not newest.is_open:
            return None
        used = in_use(newest.log)
        found = {row for it in state.stored if it.name in used for row in it.rows}
        for row in rows_of(state.acknowledged):
            if row <= state.cut and row not in found:
                return f"acknowledged row {row} is neither in the log nor in a chunk"
        return None

    def pack(self, state: Bucket) -> Bucket:
        return state

    def unpack(self, packed: Bucket) -> Bucket:
        return packed
