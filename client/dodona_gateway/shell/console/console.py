"""Serve the pages of the console at their addresses.

Owns: the table of pages, the one way in which they are answered and refused, and the lifecycle of
the observer. The content of a page is in the module of its topic.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from dodona_gateway.core.console.visit import LOGIN, LOGOUT, PARTS, PREFIX, STATIC, STATIC_FILES
from dodona_gateway.shell.console import (
    cluster_pages,
    query_page,
    table_pages,
    visits,
)
from dodona_gateway.shell.console.observing import Observer
from dodona_gateway.shell.console.rendering import (
    error_page,
    error_part,
    redirect,
    serve_static,
)
from dodona_gateway.shell.console.visits import Visit
from dodona_gateway.shell.service import Service
from dodona_wire.errors import DodonaError, NodeNotFound

Show = Callable[[Visit], Awaitable[Response]]


async def go_home(_: Visit) -> Response:
    """Redirect an address with an extra slash."""
    return redirect(PREFIX)


async def show_nothing(visit: Visit) -> Response:
    """Refuse an address that has no page. Raises NodeNotFound."""
    path = visit.request.url.path
    raise NodeNotFound(f"The console has no page {path} for {visit.request.method} requests.")


PAGES: Final[tuple[tuple[str, str, Show], ...]] = (
    ("GET", PREFIX, cluster_pages.show_cluster),
    ("GET", f"{PARTS}cluster", cluster_pages.show_cluster_part),
    ("GET", f"{PREFIX}/transactions", cluster_pages.show_transactions),
    ("GET", f"{PARTS}transactions", cluster_pages.show_transactions_part),
    ("GET", f"{PREFIX}/tables", table_pages.show_tables),
    ("GET", f"{PREFIX}/table", table_pages.show_table),
    ("GET", f"{PREFIX}/rows", table_pages.show_rows),
    ("GET", f"{PREFIX}/query", query_page.show_query),
    ("POST", f"{PREFIX}/query", query_page.run_query),
    ("POST", f"{PARTS}query", query_page.run_query_part),
    ("GET", f"{PREFIX}/recoveries", cluster_pages.show_recoveries),
    ("GET", f"{PARTS}recoveries", cluster_pages.show_recoveries_part),
    ("GET", f"{PREFIX}/", go_home),
)
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NOWHERE: Final = f"{PREFIX}/{{rest:path}}"
"""All other addresses below the console's."""
LOGIN_ROUTES: Final = (
    ("GET", LOGIN, visits.show_login),
    ("POST", LOGIN, visits.log_in),
    ("POST", LOGOUT, visits.log_out),
)


class Console:
    """The console of one gateway."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service
        self._observer: Observer | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Run the observer, between start and stop of the gateway."""
        observer = self._observer = Observer(self._service())
        task = asyncio.create_task(observer.run(), name="console")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await observer.close()

    def add_pages(self, application: FastAPI) -> None:
        """Serve the pages. All other addresses below the console's have no page."""
        add = application.router.routes.append
        for method, path, show in PAGES:
            add(Route(path, self._endpoint(show), methods=[method]))
        for method, path, answer in LOGIN_ROUTES:
            add(Route(path, self._login_route(answer), methods=[method]))
        for name in STATIC_FILES:
            add(Route(STATIC + name, _file(name), methods=["GET"]))
        add(Route(NOWHERE, self._endpoint(show_nothing), methods=[*METHODS]))

    def _endpoint(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            assert self._observer is not None, "requests come only between start and stop"
            principal = request.state.principal
            try:
                return await show(Visit(self._service(), self._observer, principal, request))
            except DodonaError as error:
                if request.url.path.startswith(PARTS):
                    return error_part(error)
                return error_page(error, principal)

        return answer

    def _login_route(
        self, enter: Callable[[Service, Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return await enter(self._service(), request)
            except DodonaError as error:
                return error_page(error)

        return answer


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return serve_static(name)

    return answer
