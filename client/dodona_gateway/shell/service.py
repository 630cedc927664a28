"""What the routes of a gateway work with: the client, held transactions, slots for heavy work.

Owns: their making and their end, and whether the cluster can be reached. Belongs to one event loop.
"""

import asyncio
import hashlib
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dodona._core.session import Session
from dodona._core.sql.references import find_tables
from dodona._core.steps import Protocol
from dodona._io.beside import running_beside
from dodona._io.logs import tell
from dodona._io.process import read_clock
from dodona._io.sessions import new_session
from dodona._io.tracing import asyncio_driver
from dodona.aio import AsyncClient, AsyncTransaction
from dodona.aio_snapshot import AsyncRun
from dodona.errors import DodonaError, Overloaded
from dodona.schema import TableSchema
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.core.access.tokens import Token
from dodona_gateway.core.answer_budget import too_much, within_budget
from dodona_gateway.core.transaction_id import GATEWAY_MAX
from dodona_gateway.shell.audit import AuditedCall, AuditLog, UnauditedCall
from dodona_gateway.shell.authentication import Authenticator
from dodona_gateway.shell.first_token import FirstToken
from dodona_gateway.shell.master_transactions import MasterTransactions
from dodona_gateway.shell.mutations import Mutations
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.tokens import TokenStore
from dodona_gateway.shell.transactions import Transactions

CLUSTER_POLL_SECONDS: Final = 1.0
CLUSTER_TIMEOUT_MS: Final = 3_000
WAITING_PER_SLOT_MAX: Final = 16

if TYPE_CHECKING:
    from dodona._io.spans import Spans

Result = TypeVar("Result")
_logger: Final = logging.getLogger("dodona.gateway")


class Slots:
    """So many at a time, and a bounded number that wait for their turn."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._free = asyncio.Semaphore(count)
        self._waiting_count = self._running_count = 0

    def statistics(self) -> dict[str, int]:
        """How many are taken, and how many wait."""
        waiting_count = self._waiting_count
        return {"running": self._running_count, "waiting": waiting_count}

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Raises Overloaded if too many wait already."""
        if self._waiting_count >= self._count * WAITING_PER_SLOT_MAX:
            text = f"the gateway works at {self._count} {self._name} at a time, and many wait"
            raise Overloaded(text)
        self._waiting_count += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting_count -= 1
        self._running_count += 1
        try:
            yield
        finally:
            self._running_count -= 1
            self._free.release()


class Service:
    """One gateway's. Make it within its event loop, with `open_service`."""

    def __init__(
        self, settings: GatewaySettings, client: AsyncClient, session: Session, run: AsyncRun
    ) -> None:
        self.settings = settings
        self.client = client
        self.session = session
        """The client's protocols: those with bounds and answers that its methods don't have."""
        self.run = run
        """Drives them."""
        self.number = gateway_number(settings)
        self.transactions = Transactions(client, self.number, settings.holding_limits)
        self.tokens = TokenStore(client)
        self.authenticator = Authenticator(self.tokens.find_many)
        self.audit = _audit(settings)
        self.master_transactions = MasterTransactions(self.number)
        self.mutations = Mutations()
        self.queries = Slots("queries", settings.query_count_max)
        self.streams = Slots("bulk streams", settings.stream_count_max)
        self.reason: str | None = "the cluster was not reached yet"
        """Why it does not serve, or None if it does."""
        path = None if settings.insecure else settings.first_token_file
        self._first_token = None if path is None else FirstToken(client, path)

    async def authenticate(
        self, authorization: str | None, *, is_watching: bool = False
    ) -> Principal:
        """Who presents these credentials. Raises Unauthenticated, Overloaded, Unavailable."""
        if self.settings.insecure:
            return ANYBODY
        now = read_clock()
        return await self.authenticator.authenticate(authorization, now, is_watching=is_watching)

    def learn_token(self, token: Token) -> None:
        """What a token has become, by this gateway's own doing."""
        self.authenticator.learn(token, read_clock())

    def audited(self, principal: Principal, **about: Any) -> AuditedCall | UnauditedCall:
        """To be entered around what an administrator asks for: it is written to the audit, if there
        is one, whatever comes of it. `about` is as in `AuditLog.call`."""
        return UnauditedCall() if self.audit is None else self.audit.call(principal, **about)

    async def schema(self, path: str) -> TableSchema:
        """The table's schema, as it is known here. Raises TableNotFound, Unavailable."""
        known = self.session.routing.find(path)
        return known.schema if known is not None else (await self.client.get_table(path)).schema

    async def look_up(self, lookup: Protocol[Result]) -> Result:
        """A lookup of rows. Raises LimitExceeded if they are more than one answer may have."""
        return await self.run(within_budget(lookup, self.settings.answer_bytes_max))

    async def query(
        self,
        principal: Principal,
        sql: str,
        transaction: AsyncTransaction | None = None,
        **options: Any,
    ) -> Any:
        """A query's result, a `pyarrow.Table`, for somebody who may read all of its tables."""
        paths, _ = find_tables(sql)
        for path in paths:
            principal.check("read", path)
        async with self.queries.take():
            if transaction is not None:
                table = await transaction.query(sql)
            else:
                table = await self.client.query(sql, **options)
        if table.nbytes > self.settings.answer_bytes_max:
            raise too_much(self.settings.answer_bytes_max)
        return table

    async def watch_cluster(self) -> None:
        """Keep `reason` true, until cancelled."""
        while True:
            self._note(await self._why_not_serving())
            await asyncio.sleep(CLUSTER_POLL_SECONDS)

    async def _why_not_serving(self) -> str | None:
        try:
            await self.run(self.session.catalog.get_cluster(CLUSTER_TIMEOUT_MS))
        except DodonaError as error:
            return f"the cluster can't be reached: {error.message}"
        try:
            await self._provide_first_token()
        except DodonaError as error:
            return f"there may be no token yet: {error.message}"
        return None

    async def _provide_first_token(self) -> None:
        """Once."""
        if self._first_token is None:
            return
        if await self._first_token.provide():
            path = self.settings.first_token_file
            _logger.info("there was no token: one for everything is in %s", path)
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
    """A gateway's service, from its start to its end; `spans` are of what it does as a client."""
    session = new_session()
    driver = asyncio_driver(settings.master_url, session.routing, settings.cluster_key, spans)
    client = AsyncClient(driver, session, settings.master_url)
    service = Service(settings, client, session, driver.run)
    if service.audit is not None:  # so that the operator may move the file away
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.audit.reopen)
    try:
        async with running_beside(service.transactions.run(), service.watch_cluster()):
            yield service
    finally:
        await service.authenticator.close()
        if service.audit is not None:
            await service.audit.close()
        await client.close()


def _audit(settings: GatewaySettings) -> AuditLog | None:
    path = settings.audit_log
    return None if path is None else AuditLog(path, bytes_max=settings.audit_bytes_max)


def gateway_number(settings: GatewaySettings) -> int:
    """Given, or made of the address: the same after a restart, and rarely that of another."""
    if settings.number is not None:
        return settings.number
    digest = hashlib.sha256(settings.address.encode()).digest()
    return int.from_bytes(digest[:2], "big") & GATEWAY_MAX
