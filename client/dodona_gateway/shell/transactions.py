"""Hold the transactions of this gateway's callers, for its routes.

Owns: that each transaction has one call at a time, and the end of transactions whose lease has
expired. A commit goes on after its caller has left. It may be repeated by its id, and the repeat
gets the same answer. This holds for another gateway and after a restart too, as long as the cells
remember the outcome.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from dodona._core.writing.lease import Lease
from dodona._core.writing.transaction import TransactionBuffer
from dodona.aio import AsyncClient, AsyncTransaction
from dodona_gateway.core.answers import Outcome
from dodona_gateway.core.holdings import End, Holding, HoldingLimits, Holdings, check_lease
from dodona_gateway.core.transaction_id import HeldId, parse_held_id
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    TransactionAborted,
    TransactionClosed,
    TransactionNotFound,
    Unavailable,
)
from dodona_wire.types import Atomicity, Durability, Isolation, Timestamp, TransactionId

EXPIRY_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 1.0
"""The pause between two checks if no transaction is open. An expired transaction that no call
uses may be aborted so much later."""


class HeldView(NamedTuple):
    """An open transaction, as people see it."""

    id: HeldId
    owner: str
    lease_ms: int
    expires_ms: int
    """Milliseconds from now, if no call comes."""
    size_bytes: int
    is_committing: bool


class EarlyLocks(NamedTuple):
    """The rows that a transaction locks before it begins, and how it waits for them, as in
    `AsyncClient.begin`."""

    rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    wait_ms: int | None = None
    nowait: bool = False
    skip_locked: int | None = None


NO_LOCKS: Final = EarlyLocks()


class Held:
    """One transaction with its lock and its commit."""

    __slots__ = ("commit", "lock", "transaction")

    def __init__(self, transaction: AsyncTransaction) -> None:
        self.transaction = transaction
        self.lock = asyncio.Lock()
        self.commit: asyncio.Task[Timestamp | None] | None = None


class Transactions:
    """All held transactions of a gateway. Belongs to one event loop."""

    def __init__(self, client: AsyncClient, gateway: int, limits: HoldingLimits) -> None:
        self._client = client
        self._gateway = gateway
        self._holdings: Holdings[Held] = Holdings(gateway, limits, self._give_up)
        self._aborts: set[asyncio.Task[None]] = set()
        self.is_closed = False
        """Whether no transaction may begin any more."""

    @property
    def open_count(self) -> int:
        """Return how many transactions are held now."""
        return self._holdings.open_count

    @property
    def size_bytes(self) -> int:
        """Return the size of the rows that the transactions hold, in bytes."""
        return self._holdings.size_bytes

    @property
    def ended_by_outcome(self) -> dict[str, int]:
        """Return how many transactions ended with each outcome, since the start."""
        return dict(self._holdings.ended_by_outcome)

    def held(self, owner: str | None) -> list[HeldView]:
        """Return the open transactions of an owner, or with None those of all owners, oldest
        first."""
        now_us = _now_us()
        return [
            HeldView(
                it.id,
                it.owner,
                it.lease_ms,
                max(it.expires_us - now_us, 0) // 1000,
                it.size_bytes,
                it.held.commit is not None,
            )
            for it in self._holdings
            if owner in (None, it.owner)
        ]

    async def run(self) -> None:
        """End transactions whose lease has expired, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_SECONDS if self.open_count else IDLE_SECONDS)
            self._holdings.expire(_now_us())

    async def begin(
        self,
        owner: str,
        atomicity: Atomicity,
        durability: Durability,
        read_own_writes: bool,
        lease_ms: int,
        timeout_ms: int | None = None,
        prerequisites: Sequence[Lease] = (),
        locks: EarlyLocks = NO_LOCKS,
        isolation: Isolation | None = None,
        timestamp: Timestamp | None = None,
    ) -> tuple[str, AsyncTransaction]:
        """Begin a transaction; return its id, and the transaction. `lease_ms` is its lease. Raises
        Overloaded, InvalidRequest, Unavailable, RowBlocked."""
        if self.is_closed:
            raise Unavailable("This gateway is stopping. Begin the transaction at another gateway.")
        check_lease(lease_ms)
        self._holdings.check_room(owner)
        begun = await self._client.begin(
            atomicity,
            durability,
            read_own_writes,
            prerequisites=prerequisites,
            locks=locks.rows,
            wait_ms=locks.wait_ms,
            nowait=locks.nowait,
            skip_locked=locks.skip_locked,
            isolation=isolation,
            timestamp=timestamp,
            timeout_ms=timeout_ms,
        )
        try:
            if begun.id is not None:  # the id is final from now on
                name = Timestamp(begun.id)
            else:
                name = await self._client.generate_timestamp(timeout_ms=timeout_ms)
            self._holdings.check_room(owner)  # other transactions may have begun meanwhile
        except DodonaError:
            await begun.abort()
            raise
        its_id = HeldId(name, atomicity, self._gateway, secrets.randbits(32))
        self._holdings.add(its_id, owner, Held(begun), lease_ms, _now_us())
        return str(its_id), begun

    def ping(self, text: str, owner: str) -> int:
        """Renew a transaction's lease, and return its length in ms. Raises TransactionNotFound,
        WrongGateway, TransactionClosed."""
        return self._find_open(text, owner).lease_ms

    @asynccontextmanager
    async def use(self, text: str, owner: str) -> AsyncIterator[AsyncTransaction]:
        """Yield the transaction, for one call. Raises the errors of `ping`, and Overloaded."""
        holding = self._find_open(text, owner)
        held = holding.held
        if held.commit is not None:
            raise TransactionClosed(
                "The transaction is being committed. Begin a new transaction.", transaction=text
            )
        self._holdings.check_size()
        with _InUse(self._holdings, holding):
            async with held.lock:
                yield held.transaction
            self._holdings.note_size(holding, buffer_of(held.transaction).size_bytes)

    async def commit(
        self,
        text: str,
        owner: str,
        *,
        is_repeatable: bool = True,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """Commit a transaction; return the commit timestamp, or None if there was nothing to
        commit. The call may be repeated, unless `is_repeatable` is false. The `timeout_ms` of the
        first call bounds the commit."""
        try:
            found = self._holdings.find(text, owner, _now_us())
        except TransactionNotFound as error:
            if not is_repeatable:
                raise
            return await self._committed_elsewhere(text, error)
        if isinstance(found, End):
            if not is_repeatable:
                raise TransactionClosed(
                    "The transaction has ended. Begin a new transaction.", transaction=text
                )
            return await self._end_again(text, found)
        if found.held.commit is None:
            found.held.commit = asyncio.create_task(self._commit(found, timeout_ms))
            found.held.commit.add_done_callback(_note_failure)
        return await asyncio.shield(found.held.commit)

    async def abort(self, text: str, owner: str) -> None:
        """Abort a transaction. The call may be repeated. Raises TransactionClosed if it is
        committed."""
        found = self._holdings.find(text, owner, _now_us())
        if isinstance(found, End):
            if found.error is None:
                raise TransactionClosed(
                    "The transaction is committed and can't be aborted.", transaction=text
                )
            return
        if found.held.commit is not None:
            raise TransactionClosed(
                "The transaction is being committed. Ask for its outcome.", transaction=text
            )
        error = TransactionAborted("The transaction was aborted by its owner.", transaction=text)
        self._holdings.end(found, _now_us(), error=error, outcome="aborted")
        await found.held.transaction.abort()

    async def outcome(
        self, text: str, owner: str, *, settle: bool, timeout_ms: int | None = None
    ) -> Outcome:
        """Return the outcome of a transaction, of any gateway."""
        try:
            found = self._holdings.find(text, owner, _now_us())
        except TransactionNotFound as error:
            return await self._ask_cells(text, error, settle=settle, timeout_ms=timeout_ms)
        if isinstance(found, Holding):
            return Outcome("active" if found.held.commit is None else "committing")
        if isinstance(found.error, CommitOutcomeUnknown):
            return await self._ask_cells(text, found.error, settle=settle, timeout_ms=timeout_ms)
        if found.error is not None:
            return Outcome("aborted")
        return Outcome("committed", found.timestamp)

    # ---- inside

    def _find_open(self, text: str, owner: str) -> Holding[Held]:
        found = self._holdings.find(text, owner, _now_us())
        if isinstance(found, Holding):
            return found
        if isinstance(found.error, TransactionNotFound):
            raise _again(found.error)
        what = "committed" if found.error is None else "aborted"
        raise TransactionClosed(
            f"The transaction is {what}. Begin a new transaction.", transaction=text
        )

    def _give_up(self, held: Held) -> None:
        """Abort a transaction whose lease is over. A task releases its early locks."""
        if not buffer_of(held.transaction).locked.cells:
            buffer_of(held.transaction).abort()
            return
        aborting = asyncio.create_task(held.transaction.abort())
        self._aborts.add(aborting)
        aborting.add_done_callback(self._aborts.discard)

    async def _commit(self, holding: Holding[Held], timeout_ms: int | None) -> Timestamp | None:
        with _InUse(self._holdings, holding):
            async with holding.held.lock:
                try:
                    timestamp = await holding.held.transaction.commit(timeout_ms=timeout_ms)
                except Exception as error:
                    self._holdings.end(holding, _now_us(), error=_end_of(error, str(holding.id)))
                    raise
            self._holdings.end(holding, _now_us(), timestamp)
        return timestamp

    async def _end_again(self, text: str, end: End) -> Timestamp | None:
        if end.error is None:
            return end.timestamp
        if isinstance(end.error, CommitOutcomeUnknown):
            return await self._committed_elsewhere(text, end.error, settle=True)
        raise _again(end.error)

    async def _committed_elsewhere(
        self, text: str, error: DodonaError, *, settle: bool = False
    ) -> Timestamp | None:
        """Return the commit timestamp if the cells committed the transaction; otherwise raise
        `error`."""
        outcome = await self._ask_cells(text, error, settle=settle)
        if outcome.state == "committed":
            return outcome.timestamp
        if outcome.state == "aborted" and isinstance(error, CommitOutcomeUnknown):
            raise TransactionAborted(
                "The transaction was not committed. Run it again.", transaction=text
            )
        raise _again(error)

    async def _ask_cells(
        self, text: str, error: DodonaError, *, settle: bool, timeout_ms: int | None = None
    ) -> Outcome:
        its_id = parse_held_id(text)
        if its_id.atomicity != "full":  # cells do not know transactions without atomicity
            raise _again(error)
        coordinator = error.attributes.get("coordinator")
        found = await self._client.outcome(
            TransactionId(its_id.name), coordinator, settle, timeout_ms=timeout_ms
        )
        return Outcome(found.state, found.timestamp)


class _InUse:
    """A call in a transaction: no lease ends the transaction meanwhile, and the lease begins again
    after the call."""

    def __init__(self, holdings: Holdings[Held], holding: Holding[Held]) -> None:
        self._holdings = holdings
        self._holding = holding

    def __enter__(self) -> None:
        self._holding.use_count += 1

    def __exit__(self, *_: object) -> None:
        self._holding.use_count -= 1
        self._holdings.renew(self._holding, _now_us())


def _note_failure(commit: asyncio.Task[Timestamp | None]) -> None:
    """Read the exception of a commit. If the callers have left, asyncio does not log it, and the
    end is still remembered."""
    if not commit.cancelled():
        commit.exception()


def _end_of(error: Exception, text: str) -> DodonaError:
    """Return the error to remember of a commit that failed, without its trace, which would keep all
    its rows."""
    if not isinstance(error, DodonaError):
        return CommitOutcomeUnknown(
            "The gateway failed during the commit. Ask for the outcome.", transaction=text
        )
    error.attributes["transaction"] = text
    return _again(error)


def _again(error: DodonaError) -> DodonaError:
    """Return a copy of the error to raise again: an exception collects the traces of all its
    raises."""
    return type(error)(error.message, **error.attributes)


def buffer_of(transaction: AsyncTransaction) -> TransactionBuffer:
    """Return the transaction's buffer and read timestamp, of which its public names say little."""
    return transaction._buffer


def _now_us() -> int:
    return time.monotonic_ns() // 1000
