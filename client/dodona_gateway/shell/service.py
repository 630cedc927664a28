"""Hold the parts that a gateway's routes work with: the client, held transactions, and slots for
heavy work.

Owns: the start and the end of these parts, and whether the cluster can be reached. Belongs to one
event loop.
"""

import asyncio
import hashlib
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dodona._core.protocol.arguments import Parameters
from dodona._core.protocol.steps import Protocol
from dodona._core.session import Session
from dodona._core.sql.references import find_tables
from dodona._io.bounds import AsyncRun, AsyncUntil
from dodona._io.computing import INTERRUPT_SECONDS
from dodona._io.making_drivers import asyncio_driver
from dodona._io.running import too_long
from dodona._io.sessions import new_session
from dodona.aio import AsyncClient, AsyncTransaction
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.core.access.tokens import Token
from dodona_gateway.core.answer_budget import within_budget
from dodona_gateway.core.query_work import Shape
from dodona_gateway.core.transaction_id import GATEWAY_MAX
from dodona_gateway.shell.audit import AuditedCall, AuditLog, UnauditedCall
from dodona_gateway.shell.authentication import NAMED_MS_MAX, Authenticator
from dodona_gateway.shell.first_token import FirstToken
from dodona_gateway.shell.queries import Queries
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.slots import Slots, Turns
from dodona_gateway.shell.tokens import TokenStore
from dodona_gateway.shell.transactions import Transactions, buffer_of
from dodona_server.beside import running_beside
from dodona_server.logs import tell
from dodona_server.process import read_clock
from dodona_wire.errors import DodonaError, Unavailable
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import NULL_TIMESTAMP, SYNC_LAST_COMMITTED, Timestamp

CLUSTER_POLL_SECONDS: Final = 1.0
"""The pause between two checks of the cluster while it can't be reached."""
CLUSTER_LOOK_SECONDS: Final = 3.0
"""The pause between two checks of the cluster while it can be reached."""
CLUSTER_TIMEOUT_MS: Final = 3_000
SELECTS_MAX: Final = 8
"""The number of selects of one table at a time. Each may read megabytes, and calls of single rows
must run between them."""

if TYPE_CHECKING:
    from dodona_wire.net.spans import Spans

Result = TypeVar("Result")
_logger: Final = logging.getLogger("dodona.gateway")


class Service:
    """The service of one gateway. Make it within its event loop, with `open_service`."""

    def __init__(
        self, settings: GatewaySettings, client: AsyncClient, session: Session, run: AsyncRun
    ) -> None:
        self.settings = settings
        self.client = client
        self.session = session
        """The client's protocols. They have bounds and answers that the client's methods lack."""
        self.run = run
        """Runs the protocols."""
        self.number = gateway_number(settings)
        self.transactions = Transactions(client, self.number, settings.holding_limits)
        self.tokens = TokenStore(client)
        find_many = partial(self.tokens.find_many, timeout_ms=NAMED_MS_MAX)
        self.authenticator = Authenticator(find_many)
        self.audit = _audit(settings)
        self.queries = Slots("queries", settings.query_count_max)
        self.query_processes = Queries(settings.query_bounds)
        self.selects = Turns(SELECTS_MAX)
        self.streams = Slots("bulk streams", settings.stream_count_max)
        self.reason: str | None = "the gateway has not reached the cluster yet"
        """Why the gateway does not serve; None if it serves."""
        path = None if settings.insecure else settings.first_token_file
        self._first_token = None if path is None else FirstToken(client, path)

    async def authenticate(
        self, authorization: str | None, *, is_watching: bool = False
    ) -> Principal:
        """Return the principal of these credentials. Raises Unauthenticated, Overloaded,
        Unavailable."""
        if self.settings.insecure:
            return ANYBODY
        now = read_clock()
        return await self.authenticator.authenticate(authorization, now, is_watching=is_watching)

    def learn_token(self, token: Token) -> None:
        """Take over a token that this gateway itself has changed."""
        self.authenticator.learn(token, read_clock())

    def audited(self, principal: Principal, **about: Any) -> AuditedCall | UnauditedCall:
        """Return a context to enter around a call of an administrator. The call is written to the
        audit, if there is one, with its outcome. `about` is as in `AuditLog.call`."""
        return UnauditedCall() if self.audit is None else self.audit.call(principal, **about)

    async def schema(self, path: str) -> TableSchema:
        """Return the table's schema as this gateway knows it. Raises TableNotFound, Unavailable."""
        known = self.session.routing.find(path)
        return known.schema if known is not None else (await self.client.get_table(path)).schema

    async def look_up(self, lookup: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """Run a lookup of rows. Raises LimitExceeded if the rows are more than one answer may
        have."""
        return await self.run(within_budget(lookup, self.settings.answer_bytes_max), timeout_ms)

    async def query(
        self,
        principal: Principal,
        sql: str,
        shape: Shape,
        transaction: AsyncTransaction | None = None,
        *,
        parameters: Parameters | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        rows_max: int | None = None,
        timeout_ms: int | None = None,
        is_stored: bool = False,
    ) -> bytes:
        """Return a query's result in that shape. The principal must have `read` on all tables of
        the query. Another process computes the query. `parameters` have values of JSON or of
        MessagePack. `rows_max` is the number of rows that are enough, None for all. With
        `is_stored` the query sees the stored values of logical types."""
        paths, _ = find_tables(sql)
        for path in paths:
            principal.check("read", path)
        buffer = None if transaction is None else buffer_of(transaction)
        at = timestamp if buffer is None else buffer.read_timestamp()
        begin = self.session.prepare_query(sql, parameters, at, retention_timestamp, is_stored)
        async with self._within(timeout_ms, too_long) as ask, self.queries.take():
            query = await ask(begin)
            run = self.query_processes.run
            return await run(ask, self.session, query, shape, buffer, rows_max)

    @asynccontextmanager
    async def turn_to_select(self, table: str, timeout_ms: int | None) -> AsyncIterator[AsyncRun]:
        """Wait for a turn to select from the table, and yield a function that runs the select.
        Raises Unavailable after `timeout_ms`."""

        def too_late(timeout_ms: int) -> Unavailable:
            text = (
                "Too many other calls read this table: no rows were read within "
                f"{timeout_ms} ms. Repeat the call."
            )
            return Unavailable(text, table=table, timeout_ms=timeout_ms)

        async with self._within(timeout_ms, too_late) as ask, self.selects.take(table):
            yield ask

    @asynccontextmanager
    async def _within(
        self, timeout_ms: int | None, failure: Callable[[int], Unavailable]
    ) -> AsyncIterator[AsyncRun]:
        """Yield a function that runs protocols, within a bound on the time of the whole block."""
        if timeout_ms is None:
            yield self.run
            return
        seconds = timeout_ms / 1000 + INTERRUPT_SECONDS
        try:  # the client names the silent server before these seconds have passed
            async with asyncio.timeout(seconds):
                yield AsyncUntil(self.run, timeout_ms)
        except TimeoutError as error:
            raise failure(timeout_ms) from error

    async def watch_cluster(self) -> None:
        """Keep `reason` up to date, until cancelled."""
        while True:
            reason = await self._why_not_serving()
            self._note(reason)
            is_there = reason is None
            await asyncio.sleep(CLUSTER_LOOK_SECONDS if is_there else CLUSTER_POLL_SECONDS)

    async def _why_not_serving(self) -> str | None:
        try:
            await self.run(self.session.catalog.get_cluster(CLUSTER_TIMEOUT_MS))
        except DodonaError as error:
            return f"the cluster can't be reached: {error.message}"
        try:
            await self._provide_first_token()
        except DodonaError as error:
            return f"it is not certain that there is a token: {error.message}"
        return None

    async def _provide_first_token(self) -> None:
        """Provide the first token, once."""
        if self._first_token is None:
            return
        if await self._first_token.provide():
            path = self.settings.first_token_file
            _logger.info("created the first token, which allows everything: see %s", path)
        self._first_token = None

    def _note(self, reason: str | None) -> None:
        if reason != self.reason:
            if reason is None:
                tell(_logger, logging.INFO, "ready", "the cluster can be reached")
            else:
                tell(_logger, logging.WARNING, "not_ready", "not serving", reason=reason)
        self.reason = reason


@asynccontextmanager
async def open_service(
    settings: GatewaySettings, spans: "Spans | None" = None
) -> AsyncIterator[Service]:
    """Yield a gateway's service, from its start to its end. `spans` record its requests as a
    client."""
    session = new_session()
    driver = asyncio_driver(settings.master_url, session.routing, settings.cluster_key, spans)
    client = AsyncClient(driver, session, settings.master_url)
    service = Service(settings, client, session, driver.run)
    if service.audit is not None:  # so that an operator may move the file
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.audit.reopen)
    try:
        async with running_beside(
            service.transactions.run(),
            service.watch_cluster(),
            service.query_processes.stay_warm(),
        ):
            yield service
    finally:
        await service.query_processes.close()
        await service.authenticator.close()
        if service.audit is not None:
            await service.audit.close()
        await client.close()


def _audit(settings: GatewaySettings) -> AuditLog | None:
    path = settings.audit_log
    return None if path is None else AuditLog(path, bytes_max=settings.audit_bytes_max)


def gateway_number(settings: GatewaySettings) -> int:
    """Return the configured number, or one from the address: the same after a restart, and rarely
    that of another gateway."""
    if settings.number is not None:
        return settings.number
    digest = hashlib.sha256(settings.address.encode()).digest()
    return int.from_bytes(digest[:2], "big") & GATEWAY_MAX
