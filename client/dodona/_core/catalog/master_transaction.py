"""A master transaction in the client that holds it: its state, and the times of its pings. Pure.

Owns: which calls each state allows, and what has happened to a transaction that the master no
longer knows. The master ends a transaction that gets no ping within its timeout. The client learns
of this by a ping, or by the next call. The client sends no pings for a transaction to which the
program holds no reference.
Threads may share a transaction: every change is a single assignment, and a list is replaced as a
whole.
"""

from collections.abc import Iterator
from typing import Any, Final, NoReturn
from weakref import ref

from dodona._core.protocol.retry import InstantClock
from dodona._core.protocol.steps import MASTER, Calls, Protocol
from dodona._core.writing.transaction import TransactionState
from dodona_wire.errors import InvalidRequest, TransactionClosed, TransactionNotFound
from dodona_wire.messages.base import Failure
from dodona_wire.messages.tree import PingTreeTransaction, TreeTransaction
from dodona_wire.types import TreeTransactionId

TIMEOUT_MS: Final = 30_000
PING_PERIOD_MS_MAX: Final = 5_000
PINGS_PER_TIMEOUT: Final = 3
"""How many pings in a row must fail before the master ends the transaction of a running client."""
PINGS_AT_ONCE_MAX: Final = 16


class Lease:
    """One master transaction. Transactions inside it hold a reference to it."""

    __slots__ = (
        "__weakref__",
        "id",
        "is_in_doubt",
        "is_lost",
        "parent",
        "ping_due_us",
        "state",
        "timeout_ms",
    )

    def __init__(self, begun: TreeTransaction, parent: "Lease | None", instant_us: int) -> None:
        self.id: TreeTransactionId = begun.transaction
        self.timeout_ms = begun.timeout_ms
        self.parent = parent
        self.state = TransactionState.ACTIVE
        self.is_lost = False
        """Whether the master has ended the transaction itself, since no ping came in time."""
        self.is_in_doubt = False
        """Whether a commit has ended with an unknown result."""
        self.ping_due_us = instant_us
        self.put_off_ping(instant_us)

    def put_off_ping(self, instant_us: int) -> None:
        """Plan the next ping after one that is sent now."""
        period_ms = min(PING_PERIOD_MS_MAX, max(1, self.timeout_ms // PINGS_PER_TIMEOUT))
        self.ping_due_us = instant_us + period_ms * 1000

    @property
    def is_open(self) -> bool:
        """Whether the transaction is active, as far as this client knows."""
        return self.state is TransactionState.ACTIVE

    @property
    def state_known(self) -> TransactionState:
        """The transaction's state. If it was open when its outer transaction ended, it is
        aborted."""
        if self.is_open and self.parent is not None:
            outer = self.parent.state_known
            if outer in (TransactionState.COMMITTED, TransactionState.ABORTED):
                return TransactionState.ABORTED
        return self.state

    def describe(self, name: str) -> str:
        """Return a text for people, under the class name that they see."""
        return f"<{name} {self.id} {'lost' if self.is_lost else self.state_known.value}>"

    def check_open(self) -> None:
        """Check that calls are allowed. Raises TransactionClosed, TransactionNotFound."""
        if self.is_lost:
            raise self.lost_error()
        if not self.is_open:
            raise TransactionClosed(
                f"Master transaction {self.id} is {self.state.value}.", transaction=self.id
            )
        if self.parent is not None:
            self.parent.check_open()

    def lose(self) -> None:
        """Note that the master does not know the transaction. If the client has ended it, this
        changes nothing."""
        if self.is_open:
            self.is_lost = True
            self.state = TransactionState.ABORTED

    def lost_error(self) -> TransactionNotFound:
        """Return the error for all calls after the master has ended the transaction."""
        return TransactionNotFound(
            f"The master has aborted transaction {self.id}, since no ping arrived in time. "
            "Begin a new transaction.",
            transaction=self.id,
            timeout_ms=self.timeout_ms,
        )


class Pings:
    """The master transactions of one client that need pings, and the times of the pings."""

    def __init__(self, instant_us: InstantClock) -> None:
        self._instant_us = instant_us
        self._leases: list[ref[Lease]] = []

    def add(self, lease: Lease) -> None:
        """Ping the transaction from now on, while it is open and the program holds a reference to
        it."""
        self._leases = [ref(lease), *[ref(it) for it in self._open()]]

    def wait_ms(self) -> int | None:
        """Return the milliseconds until the next ping, or None if there is none."""
        due_us = min((lease.ping_due_us for lease in self._open()), default=None)
        return None if due_us is None else max(0, -((self._instant_us() - due_us) // 1000))

    def do_due(self) -> Protocol[None]:
        """Ping the transactions that are due. If the master does not answer, the next ping follows
        one period later."""
        now_us = self._instant_us()
        due = [lease for lease in self._open() if lease.ping_due_us <= now_us][:PINGS_AT_ONCE_MAX]
        if not due:
            return
        for lease in due:
            lease.put_off_ping(now_us)
        requests = tuple([(MASTER, PingTreeTransaction(lease.id)) for lease in due])
        replies = yield Calls(requests)
        for lease, reply in zip(due, replies, strict=True):
            if isinstance(reply, Failure) and reply.kind == TransactionNotFound.kind:
                lease.lose()

    def _open(self) -> Iterator[Lease]:
        for known in self._leases:
            lease = known()
            if lease is not None and lease.is_open:
                yield lease


class RowsRefused:
    """The row calls of a master transaction. Each raises an error that says where to make the
    call."""

    def insert_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to insert rows. Raises InvalidRequest."""
        _refuse_rows()

    def delete_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to delete rows. Raises InvalidRequest."""
        _refuse_rows()

    def lock_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to lock rows. Raises InvalidRequest."""
        _refuse_rows()

    def write(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to write data. Raises InvalidRequest."""
        _refuse_rows()

    def write_arrow(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to write Arrow data. Raises InvalidRequest."""
        _refuse_rows()

    def lookup_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to look up rows. Raises InvalidRequest."""
        _refuse_rows()

    def lookup_versions(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to look up versions. Raises InvalidRequest."""
        _refuse_rows()

    def select(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to read a range of rows. Raises InvalidRequest."""
        _refuse_rows()

    def read_arrow(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to read rows as Arrow data. Raises InvalidRequest."""
        _refuse_rows()

    def query(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to run a query. Raises InvalidRequest."""
        _refuse_rows()


def _refuse_rows() -> NoReturn:
    raise InvalidRequest(
        "Master transactions change the tree only. Read and write rows in a transaction of "
        "`begin()` on the client."
    )
