"""The gateway process: service, routes, edge and sockets, put together.

Owns: nothing but the wiring, and what "ready" means for a gateway.
"""

import functools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Response
from starlette.types import Scope

from dodona._io.pages import create_application
from dodona._io.serving import serve_pages
from dodona.errors import DodonaError
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.shell.edge import Edge
from dodona_gateway.shell.http import bounded_http
from dodona_gateway.shell.openapi import describe
from dodona_gateway.shell.rest import bulk, nodes, rows, tables, tokens, transactions
from dodona_gateway.shell.routes import Route, add_routes, problem
from dodona_gateway.shell.service import Service, open_service
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.ytsaurus.api import add_ytsaurus_api, error_response

ROUTES: Final[tuple[Route, ...]] = (
    *tables.ROUTES,
    *nodes.ROUTES,
    *rows.ROUTES,
    *transactions.ROUTES,
    *bulk.ROUTES,
    *tokens.ROUTES,
)
BULK_PREFIX: Final = "/v1/bulk/"
YTSAURUS_PREFIXES: Final = ("/api/", "/auth/", "/hosts")

_logger: Final = logging.getLogger("dodona.gateway")


def run_gateway(settings: GatewaySettings) -> None:
    """Serve until a signal comes. Raises SystemExit."""
    options: dict[str, Any] = {
        "ws": "none",
        "http": bounded_http(settings.http_bounds),
        "limit_concurrency": None,  # uvicorn's own refusal is no problem, in JSON
    }
    if settings.tls_certificate is not None:
        options["ssl_certfile"] = str(settings.tls_certificate)
        options["ssl_keyfile"] = str(settings.tls_key)
    serve_pages(create_gateway(settings), settings, settings.port, **options)


class _Gateway:
    """What exists from the start of the process to its end."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._service: Service | None = None

    def service(self) -> Service:
        assert self._service is not None, "requests come between start and stop"
        return self._service

    def reason(self) -> str | None:
        return "it is starting" if self._service is None else self._service.reason

    async def authenticate(self, authorization: str | None) -> Principal:
        return await self.service().authenticate(authorization)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with open_service(self._settings) as service:
            self._service = service
            _logger.info("listening on %s", self._settings.address)
            yield


def create_gateway(settings: GatewaySettings) -> Edge:
    """The whole application: routes behind the edge."""
    gateway = _Gateway(settings)
    application = create_application("Dodona gateway", gateway.lifespan, gateway.reason)
    application.router.redirect_slashes = False
    add_routes(application, ROUTES, gateway.service)
    application.openapi = openapi_document  # type: ignore[method-assign]
    add_ytsaurus_api(application, gateway.service)
    return Edge(
        application,
        gateway.authenticate,
        settings,
        _is_stream,
        refusal=refusal,
        is_local=settings.insecure,
    )


def refusal(path: str, error: DodonaError) -> Response:
    """An error in the words of whoever asks."""
    return error_response(error) if path.startswith(YTSAURUS_PREFIXES) else problem(error)


@functools.cache
def openapi_document() -> dict[str, Any]:
    """What `/openapi.json` says."""
    return describe(ROUTES, version("dodona"))


def openapi_text() -> str:
    """The same, for people to read and to be committed."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1).decode() + "\n"


def _is_stream(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith(BULK_PREFIX)
