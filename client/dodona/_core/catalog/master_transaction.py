"""A master transaction as its client holds it: its state, and when it is to be pinged. Pure.

Owns: what may be done in which state, and what became of a transaction that the master does not
know any more. The master ends one that was not pinged for its time-out; whoever holds it learns of
that by a ping or by the next call. A transaction that its holder let go of is pinged no more.
Threads may share it: every change is a single assignment, and a list is replaced as a whole.
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
"""So many in a row have to fail before the master ends a transaction whose client is alive."""
PINGS_AT_ONCE_MAX: Final = 16


class Lease:
    """One master transaction. Those inside it hold on to it."""

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
        """Whether the master ended it of its own accord."""
        self.is_in_doubt = False
        """Whether a commit has ended, and how is not known."""
        self.ping_due_us = instant_us
        self.put_off_ping(instant_us)

    def put_off_ping(self, instant_us: int) -> None:
        """It is pinged now: when it is to be again."""
        period_ms = min(PING_PERIOD_MS_MAX, max(1, self.timeout_ms // PINGS_PER_TIMEOUT))
        self.ping_due_us = instant_us + period_ms * 1000

    @property
    def is_open(self) -> bool:
        """Whether it is active, as far as this client knows."""
        return self.state is TransactionState.ACTIVE

    @property
    def state_known(self) -> TransactionState:
        """Its state; one that was open when the transaction around it ended was aborted then."""
        if self.is_open and self.parent is not None:
            outer = self.parent.state_known
            if outer in (TransactionState.COMMITTED, TransactionState.ABORTED):
                return TransactionState.ABORTED
        return self.state

    def describe(self, name: str) -> str:
        """For people, under the name of the class that they see."""
        return f"<{name} {self.id} {'lost' if self.is_lost else self.state_known.value}>"

    def check_open(self) -> None:
        """Raises TransactionClosed, TransactionNotFound."""
        if self.is_lost:
            raise self.lost_error()
        if not self.is_open:
            raise TransactionClosed(
                f"master transaction {self.id} is {self.state.value}", transaction=self.id
            )
        if self.parent is not None:
            self.parent.check_open()

    def lose(self) -> None:
        """The master does not know it. No news if its holder has ended it."""
        if self.is_open:
            self.is_lost = True
            self.state = TransactionState.ABORTED

    def lost_error(self) -> TransactionNotFound:
        """For all calls after it was lost."""
        return TransactionNotFound(
            f"master transaction {self.id} could not be pinged in time: the master has ended it, "
            "and nothing of it is left",
            transaction=self.id,
            timeout_ms=self.timeout_ms,
        )


class Pings:
    """Which master transactions of one client are to be pinged, and when."""

    def __init__(self, instant_us: InstantClock) -> None:
        self._instant_us = instant_us
        self._leases: list[ref[Lease]] = []

    def add(self, lease: Lease) -> None:
        """Ping it from now on, as long as it is open and somebody holds it."""
        self._leases = [ref(lease), *[ref(it) for it in self._open()]]

    def wait_ms(self) -> int | None:
        """How long until the next ping. None if there is to be none."""
        due_us = min((lease.ping_due_us for lease in self._open()), default=None)
        return None if due_us is None else max(0, -((self._instant_us() - due_us) // 1000))

    def do_due(self) -> Protocol[None]:
        """Ping those whose time has come. A master that is away is asked again at their next."""
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
    """The row calls of a master transaction, so that who tries them learns where they belong."""

    def insert_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def delete_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def lock_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def write_arrow(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def lookup_rows(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def lookup_versions(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def select(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def read_arrow(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()

    def query(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InvalidRequest."""
        _refuse_rows()


def _refuse_rows() -> NoReturn:
    raise InvalidRequest(
        "master transactions change the tree only: rows are read and written in the transactions "
        "of `begin()` on the client"
    )
