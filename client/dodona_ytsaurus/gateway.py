"""Say what the commands need of the gateway that serves them.

Owns: the protocols that a gateway implements: its client, the transactions that it holds, and what
it knows of a caller. Imports of the project only the client and what the client stands on, so that
no gateway is imported here.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol, TypeVar

from starlette.requests import Request

from dodona._core.protocol import steps
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona._io.bounds import AsyncRun
from dodona.aio import AsyncClient, AsyncTransaction
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Atomicity,
    Durability,
    Timestamp,
)

Role = Literal["read", "write", "admin"]
"""What a token may allow on a node. Each role includes those before it."""
Result = TypeVar("Result")


class Principal(Protocol):
    """The sender of a request. The checks raise Forbidden."""

    @property
    def name(self) -> str: ...

    @property
    def owner(self) -> str:
        """The name under which the sender owns transactions."""
        ...

    def allows(self, role: Role, path: str, *, subtree: bool = False) -> bool:
        """Return whether the role is granted at this node, and for a subtree at all nodes below
        it."""
        ...

    def check(self, role: Role, path: str, *, subtree: bool = False) -> None:
        """Check that `allows` is true."""
        ...

    def check_somewhere(self, role: Role) -> None:
        """Check that the role is granted on any node."""
        ...


class WantedRows(NamedTuple):
    """Which rows of a query's result are wanted, and as which types of Dodona."""

    types: tuple[str, ...]
    rows_max: int | None
    """The largest number of rows; None means no limit."""
    is_cut: bool
    """Whether more rows are left out. Otherwise a result with more rows is refused."""


class Caller(Protocol):
    """The sender of one request, with what the gateway does only for a known sender."""

    @property
    def principal(self) -> Principal: ...

    @property
    def request_id(self) -> str: ...

    def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the body in pieces, unpacked. Raises InvalidRequest, UnsupportedMediaType."""
        ...

    def audited(
        self, operation: str, path: str | None
    ) -> AbstractAsyncContextManager[object, None]:
        """Return a context to enter around a call of an administrator. The call is written to the
        audit, if there is one, with its outcome."""
        ...

    async def query(
        self,
        sql: str,
        wanted: WantedRows,
        transaction: AsyncTransaction | None = None,
        *,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> bytes:
        """Return a query's rows, as a list of lists in MessagePack. The sender must have `read` on
        all tables of the query."""
        ...


class Outcome(Protocol):
    """How a transaction ended, or that it is still open."""

    @property
    def state(self) -> str: ...


class HeldTransactions(Protocol):
    """The transactions that a gateway holds. All of them raise TransactionNotFound and
    WrongGateway."""

    def ping(self, text: str, owner: str) -> int:
        """Renew a transaction's lease, and return its length in ms. Raises TransactionClosed."""
        ...

    def use(self, text: str, owner: str) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Yield the transaction, for one call. Raises TransactionClosed, Overloaded."""
        ...

    async def commit(
        self, text: str, owner: str, *, is_repeatable: bool = True
    ) -> Timestamp | None:
        """Commit a transaction; return the commit timestamp, or None if there was nothing to
        commit. The call may be repeated, unless `is_repeatable` is false."""
        ...

    async def abort(self, text: str, owner: str) -> None:
        """Abort a transaction. Raises TransactionClosed if it is committed."""
        ...

    async def outcome(self, text: str, owner: str, *, settle: bool) -> Outcome:
        """Return the outcome of a transaction, of any gateway."""
        ...


class Gateway(Protocol):
    """The gateway that serves the commands. Belongs to one event loop."""

    @property
    def number(self) -> int:
        """The number that ids of transactions name it by."""
        ...

    @property
    def address(self) -> str: ...

    @property
    def body_bytes_max(self) -> int:
        """The longest body that has no rows, unpacked."""
        ...

    @property
    def client(self) -> AsyncClient: ...

    @property
    def session(self) -> Session:
        """The client's protocols."""
        ...

    @property
    def run(self) -> AsyncRun:
        """Runs the protocols."""
        ...

    @property
    def transactions(self) -> HeldTransactions: ...

    def caller(self, request: Request) -> Caller:
        """Return the sender of a request, which the gateway has authenticated."""
        ...

    async def begin(
        self, owner: str, atomicity: Atomicity, durability: Durability, lease_ms: int | None
    ) -> str:
        """Begin a transaction to be held, and return its id. None is the usual lease; a lease that
        is too long becomes the longest one. Raises Overloaded, InvalidRequest, Unavailable."""
        ...

    def buffer_of(self, transaction: AsyncTransaction) -> TransactionBuffer:
        """Return the buffer of a held transaction."""
        ...

    async def schema(self, path: str) -> TableSchema:
        """Return the table's schema as the gateway knows it. Raises TableNotFound, Unavailable."""
        ...

    async def look_up(self, lookup: steps.Protocol[Result]) -> Result:
        """Run a lookup of rows. Raises LimitExceeded if the rows are more than one answer may
        have."""
        ...

    def check_sent(self, content: bytes) -> None:
        """Raise LimitExceeded if rows are too long, in the form in which they are sent."""
        ...
