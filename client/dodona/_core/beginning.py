"""The beginning and the end of a transaction that was not committed. Pure.

Owns: how a transaction gets its start timestamp, its early locks and its prerequisites, and how a
client gives it up. `row_session` has the commit.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from dodona._core.protocol.arguments import Row, check_flag, repeatable
from dodona._core.protocol.attempts import with_route
from dodona._core.protocol.context import Context
from dodona._core.protocol.retry import Rerun
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.reading import check_snapshot, encode_keys
from dodona._core.writing.early_locks import (
    AS_USUAL,
    NOTHING_LOCKED,
    Locked,
    Waiting,
    acquire,
    check_locks,
    release,
)
from dodona._core.writing.lease import Lease, check_leases
from dodona._core.writing.modes import check_modes
from dodona._core.writing.reads import check_isolation, reads_of
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.types import Atomicity, Durability, Isolation, Key, Timestamp


class Beginnings:
    """The part of a session that begins transactions."""

    _context: Context

    def begin(
        self,
        atomicity: Atomicity = "full",
        durability: Durability = "sync",
        read_own_writes: bool = False,
        prerequisites: Iterable[Lease] = (),
        locks: Mapping[str, Iterable[Row]] | None = None,
        waiting: Waiting = AS_USUAL,
        asked: list[Locked] | None = None,
        isolation: Isolation | None = None,
        timestamp: Timestamp | None = None,
        is_repeatable: bool = False,
    ) -> Protocol[TransactionBuffer]:
        """Begin a transaction, and return its buffer, with conditions for the prerequisites.
        `locks` are rows to lock before, and `asked` is as in `acquire`. With a `timestamp`, it only
        reads, at this timestamp. `is_repeatable` says that all of its reads get the buffer. Only
        then may it be sent again after a refusal. Raises InvalidRequest, TableNotFound,
        Unavailable, and the errors of `acquire`."""
        check_modes(atomicity, durability)
        check_isolation(isolation)
        if isolation is not None and atomicity == "none":
            raise InvalidRequest("A transaction with atomicity none has no isolation.")
        check_flag(read_own_writes, "read_own_writes")
        leases = check_leases(prerequisites) if prerequisites else ()
        if timestamp is not None:
            has_locks = locks is not None or bool(leases)
            return self._reader(timestamp, atomicity, isolation, has_locks=has_locks)
        locked = NOTHING_LOCKED
        if locks is not None:
            wanted = yield from self._rows_of(check_locks(locks, atomicity))
            locked = yield from acquire(self._context, wanted, waiting, asked)
        modes = atomicity, durability, read_own_writes
        return (yield from self._begun(*modes, leases, locked, isolation, is_repeatable))

    def _reader(
        self,
        timestamp: int,
        atomicity: Atomicity,
        isolation: Isolation | None,
        *,
        has_locks: bool,
    ) -> TransactionBuffer:
        """Return the buffer of a transaction that reads at a timestamp. No server takes part."""
        start = check_snapshot(timestamp)
        if atomicity == "none" or has_locks:
            raise InvalidRequest(
                "A transaction with a timestamp only reads, as of this timestamp. It has atomicity "
                "full, no locks and no prerequisites."
            )
        buffer = self._buffer(start, "full", "sync", self._context.instant_us())
        buffer.id, buffer.only_reads, buffer.isolation = None, True, isolation
        return buffer

    def begin_attempt(
        self,
        rerun: Rerun,
        prerequisites: Iterable[Lease],
        isolation: Isolation | None = None,
        asked: list[Locked] | None = None,
    ) -> Protocol[TransactionBuffer]:
        """Begin the next attempt of a function that runs as a transaction. After several failures,
        it locks the rows of the last attempts first."""
        locked = NOTHING_LOCKED
        if rerun.rows:
            try:
                waiting = Waiting(rerun.left_ms)
                locked = yield from acquire(self._context, rerun.rows, waiting, asked)
            except InvalidRequest:  # a table was altered or replaced: these are no rows of it now
                rerun.rows = {}
        leases = check_leases(prerequisites) if prerequisites else ()
        modes: tuple[Atomicity, Durability, bool] = ("full", "sync", False)
        return (yield from self._begun(*modes, leases, locked, isolation, True))

    def _begun(
        self,
        atomicity: Atomicity,
        durability: Durability,
        read_own_writes: bool,
        leases: Iterable[Lease],
        locked: Locked,
        isolation: Isolation | None,
        is_repeatable: bool,
    ) -> Protocol[TransactionBuffer]:
        """Return the buffer of a transaction that begins now, with the locks that it has. The last
        grant may have its start timestamp."""
        try:
            begun_us = self._context.instant_us()
            start = None
            if atomicity == "full":
                start = locked.start or (yield from self._context.generate_timestamp())
            buffer = self._buffer(start, atomicity, durability, begun_us, read_own_writes)
            buffer.isolation = isolation
            if atomicity == "full":
                refreshes = self._context.refreshes if is_repeatable else False
                buffer.reads = reads_of(isolation, self._context.isolation, refreshes)
            yield from self._prepare_buffer(buffer, locked, leases)
        except DodonaError:
            yield from release(locked)
            raise
        return buffer

    def _prepare_buffer(
        self, buffer: TransactionBuffer, locked: Locked, leases: Iterable[Lease]
    ) -> Protocol[None]:
        buffer.locked = locked
        for path, keys in locked.rows.items():
            route = yield from self._context.route(path)
            buffer.hold(path, route.schema, keys)
        for it in leases:
            route = yield from self._context.route(it.table)
            buffer.require(it.table, route.schema, [it.key], it.required)

    def _rows_of(self, locks: Mapping[str, Iterable[Row]]) -> Protocol[dict[str, list[Key]]]:
        """Encode the keys of rows to lock."""
        wanted: dict[str, list[Key]] = {}
        for path, keys in locks.items():
            given = repeatable(keys)
            encode = partial(encode_keys, keys=given)
            wanted[path] = yield from with_route(self._context, path, encode)
        return wanted

    def give_up(self, asked: list[Locked]) -> Protocol[None]:
        """Release what an interrupted `begin` has asked for."""
        while asked:
            yield from release(asked.pop())

    def abort(self, transaction: TransactionBuffer) -> Protocol[None]:
        """Drop the buffer, and release its early locks. Raises TransactionClosed after a
        commit."""
        transaction.abort()
        return release(transaction.locked)

    def _buffer(
        self,
        start: Timestamp | None,
        atomicity: Atomicity,
        durability: Durability,
        begun_us: int,
        reads_own_writes: bool = False,
    ) -> TransactionBuffer:
        return TransactionBuffer(
            start,
            atomicity=atomicity,
            durability=durability,
            begun_us=begun_us,
            limits=self._context.limits.transaction,
            reads_own_writes=reads_own_writes,
        )
