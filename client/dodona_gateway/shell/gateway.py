"""Put the gateway process together: service, routes, edge and sockets.

Owns: only the wiring, and when a gateway counts as ready.
"""

import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.types import Scope

from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.console.visit import is_console
from dodona_gateway.core.traffic import TrafficStatistics
from dodona_gateway.shell.certificate import Certificate
from dodona_gateway.shell.console import visits
from dodona_gateway.shell.console.console import Console
from dodona_gateway.shell.edge import Edge, Refusal
from dodona_gateway.shell.metrics import GATEWAY_METRICS
from dodona_gateway.shell.openapi import describe
from dodona_gateway.shell.rest import (
    bulk,
    copies,
    leases,
    nodes,
    rows,
    tables,
    tokens,
    transactions,
)
from dodona_gateway.shell.routes import Route, add_routes, problem
from dodona_gateway.shell.service import Service, open_service
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.tokens import read_first_token
from dodona_gateway.shell.ytsaurus import (
    YTSAURUS_PREFIXES,
    YtsaurusService,
    add_ytsaurus_api,
    error_response,
    headers_of,
    ytsaurus_service,
)
from dodona_server.beside import running_beside
from dodona_server.exposition import Metrics
from dodona_server.http import Connections, bounded_http
from dodona_server.lifecycle import METRICS, Lifecycle, wait_until
from dodona_server.listener import listener_of
from dodona_server.metrics import ServerReport
from dodona_server.pages import create_application, metrics_response
from dodona_server.serving import serve_pages
from dodona_server.tracing import server_spans
from dodona_wire.errors import DodonaError

if TYPE_CHECKING:
    from dodona_gateway.shell.traced_requests import RequestTracing
    from dodona_wire.net.spans import Spans

ROUTES: Final[tuple[Route, ...]] = (
    *tables.ROUTES,
    *copies.ROUTES,
    *nodes.ROUTES,
    *rows.ROUTES,
    *transactions.ROUTES,
    *leases.ROUTES,
    *bulk.ROUTES,
    *tokens.ROUTES,
)
BULK_PREFIX: Final = "/v1/bulk/"


def run_gateway(settings: GatewaySettings) -> None:
    """Serve until a signal comes. Raises SystemExit, InvalidRequest."""
    # The caller is not known here. YTsaurus's clients find an error in these headers.
    http = bounded_http(settings.http_bounds, headers_of)
    options: dict[str, Any] = {
        "ws": "none",
        "http": http,
    }
    certificate = None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        certificate = Certificate(settings.tls_certificate, settings.tls_key)
        options["ssl_certfile"] = str(settings.tls_certificate)
        options["ssl_keyfile"] = str(settings.tls_key)
        options["on_tls"] = certificate.attend
    if settings.first_token_file is not None:
        read_first_token(settings.first_token_file)  # a bad token file ends the process now
    edge = create_gateway(settings, http.together, certificate)
    with listener_of(settings, _refusal_of(settings)) as listener:
        serve_pages(edge, edge.lifecycle, settings, listener, **options)


class GatewayReport(NamedTuple):
    """The values from which the gateway's metrics are made."""

    server: ServerReport
    traffic: TrafficStatistics
    connections: int
    refusals: dict[str, int]
    requests_in_flight: int
    transactions_held: int
    transactions_bytes: int
    transactions_ended: dict[str, int]
    work: dict[str, dict[str, int]]


class _Gateway:
    """The state of a gateway from the start of the process to its end."""

    def __init__(
        self,
        settings: GatewaySettings,
        connections: Connections,
        certificate: Certificate | None,
    ) -> None:
        self._settings = settings
        self._certificate = certificate
        self._connections = connections
        self._service: Service | None = None
        self._ytsaurus: YtsaurusService | None = None
        self._metrics_key = settings.metrics_key
        self.spans = server_spans("gateway", settings.trace_url, settings.trace_ratio)
        self.lifecycle = Lifecycle(self.reason, finish=self._finish)
        self.edge: Edge | None = None
        self._metrics = Metrics("gateway", GATEWAY_METRICS, self._report)
        self.console = Console(self.service) if settings.console else None

    def service(self) -> Service:
        assert self._service is not None, "requests come only between start and stop"
        return self._service

    def ytsaurus(self) -> YtsaurusService:
        assert self._ytsaurus is not None, "requests come only between start and stop"
        return self._ytsaurus

    def reason(self) -> str | None:
        return "the gateway is starting" if self._service is None else self._service.reason

    async def authenticate(self, authorization: str | None) -> Principal:
        return await self.service().authenticate(authorization)

    async def admit_watcher(self, authorization: str | None) -> Principal:
        return await self.service().authenticate(authorization, is_watching=True)

    async def _finish(self) -> None:
        """Begin no new transaction, and serve only calls in held transactions. Return when no
        transaction and no request is left."""
        service, edge = self.service(), self.edge
        assert edge is not None
        service.transactions.is_closed = edge.is_closed = True
        await wait_until(lambda: not service.transactions.open_count and not edge.request_count)

    async def answer_scrape(self, request: Request) -> Response:
        """Return the metrics, to callers with the metrics key and to administrators."""
        shown = request.headers.get("authorization")
        try:
            if self._metrics_key is None or not self._metrics_key.admits(shown):
                (await self.authenticate(shown)).check_everywhere("admin")
        except DodonaError as error:
            return problem(error)
        return metrics_response(self._metrics, request)

    def _report(self) -> GatewayReport:
        service, edge = self.service(), self.edge
        assert edge is not None
        held, traffic = service.transactions, edge.traffic.statistics()
        return GatewayReport(
            ServerReport.of(self.lifecycle, str(service.number)),
            traffic,
            self._connections.count,
            _added(traffic.refusals, self._connections.refusals),
            edge.request_count,
            held.open_count,
            held.size_bytes,
            held.ended_by_outcome,
            {"queries": service.queries.statistics(), "streams": service.streams.statistics()},
        )

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with open_service(self._settings, self.spans) as service:
            self._service, self._ytsaurus = service, ytsaurus_service(service)
            async with AsyncExitStack() as stack:
                if self.console is not None:
                    await stack.enter_async_context(self.console.watching())
                if self._certificate is not None:
                    watch = self._certificate.watch()
                    await stack.enter_async_context(running_beside(watch))
                yield
        if self.spans is not None:
            await self.spans.close()


def _added(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {key: counts.get(key, 0) + more.get(key, 0) for key in (*counts, *more)}


def create_gateway(
    settings: GatewaySettings,
    connections: Connections | None = None,
    certificate: Certificate | None = None,
) -> Edge:
    """Return the whole application: the routes behind the edge, with the given connections and
    certificate."""
    gateway = _Gateway(settings, connections or Connections(), certificate)
    application = create_application("Dodona gateway", gateway.lifespan, gateway.lifecycle)
    application.router.redirect_slashes = False
    add_routes(application, ROUTES, gateway.service)
    application.openapi = openapi_document  # type: ignore[method-assign]
    add_ytsaurus_api(application, gateway.ytsaurus)
    application.add_route(METRICS, gateway.answer_scrape, include_in_schema=False)
    if gateway.console is not None:
        gateway.console.add_pages(application)
    gateway.edge = Edge(
        application,
        gateway.authenticate,
        settings,
        _is_stream,
        refusal=_refusal_of(settings),
        is_local=settings.insecure,
        admit_watcher=gateway.admit_watcher,
        lifecycle=gateway.lifecycle,
        tracing=None if gateway.spans is None else _request_tracing(gateway.spans),
    )
    return gateway.edge


def _request_tracing(spans: "Spans") -> "RequestTracing":
    from dodona_gateway.shell.traced_requests import RequestTracing

    return RequestTracing(spans)


def _refusal_of(settings: GatewaySettings) -> Refusal:
    return functools.partial(refusal, has_console=settings.console)


def refusal(path: str, error: DodonaError, *, has_console: bool = True) -> Response:
    """Return an error in the format of the caller's API: the console, YTsaurus or REST."""
    if has_console and is_console(path):
        return visits.refusal(path, error)
    return error_response(error) if path.startswith(YTSAURUS_PREFIXES) else problem(error)


@functools.cache
def openapi_document() -> dict[str, Any]:
    """Return the content of `/openapi.json`."""
    return describe(ROUTES, version("dodona"))


def openapi_text() -> str:
    """Return the same as formatted text, which people read and which is committed."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1).decode() + "\n"


def _is_stream(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith(BULK_PREFIX)
