"""Handle one visit of a page of the console, and the login.

Owns: the input of a page (`Visit`), the login, which keeps a token in a cookie, and the logout.
Owns also the answer to an unknown caller, or one without a grant. `core.access` defines what a
token allows.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from fastapi import Request, Response

from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.console.visit import (
    LOGIN,
    PARTS,
    PREFIX,
    check_origin,
    clear_cookie,
    set_cookie,
    token_of,
)
from dodona_gateway.shell.console.observing import Observer
from dodona_gateway.shell.console.rendering import (
    HEADERS,
    described,
    error_page,
    error_part,
    page,
    redirect,
)
from dodona_gateway.shell.service import Service
from dodona_server.pages import collect_body
from dodona_wire.errors import DodonaError, InvalidRequest, Unauthenticated

FORM_BYTES_MAX: Final = 2 << 20
FIELDS_MAX: Final = 32


class Visit(NamedTuple):
    """One request of a known caller."""

    service: Service
    observer: Observer
    principal: Principal
    request: Request

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters in the address."""
        return self.request.query_params


async def read_form(request: Request, address: str) -> dict[str, str]:
    """Return the fields of a form that a page of the console sent. Raises Forbidden,
    InvalidRequest, LimitExceeded."""
    check_origin(request.headers.get("origin"), request.headers.get("host"), address)
    content = await collect_body(request, FORM_BYTES_MAX)
    try:
        pairs = parse_qsl(
            content.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise InvalidRequest(f"The form of the request is not valid: {error}") from error
    return dict(pairs)


async def show_login(service: Service, request: Request) -> Response:
    """Show the login. A caller with a token that is no longer valid sees the reason."""
    if service.settings.insecure:
        return redirect(PREFIX)
    token = token_of(request.headers.get("cookie"))
    if token is None:
        return page("login.html", None, error=None)
    try:
        await service.authenticate(f"Bearer {token}")
    except Unauthenticated as error:
        answer = page("login.html", None, error=described(error))
        answer.headers["set-cookie"] = clear_cookie(is_secure=is_secure(service))
        return answer
    return redirect(PREFIX)


async def log_in(service: Service, request: Request) -> Response:
    """Keep a valid token in a cookie."""
    try:
        fields = await read_form(request, service.settings.address)
        token = fields.get("token", "").strip()
        if not token:
            raise InvalidRequest("The token is missing. Paste a token, which begins with dodona_.")
        await service.authenticate(f"Bearer {token}")
    except DodonaError as error:
        return page("login.html", None, status=error.status, error=described(error))
    answer = redirect(PREFIX)
    answer.headers["set-cookie"] = set_cookie(token, is_secure=is_secure(service))
    return answer


async def log_out(service: Service, request: Request) -> Response:
    """Clear the cookie. The token itself stays valid."""
    await read_form(request, service.settings.address)
    answer = redirect(LOGIN)
    answer.headers["set-cookie"] = clear_cookie(is_secure=is_secure(service))
    return answer


def is_secure(service: Service) -> bool:
    """Return whether callers use TLS."""
    return service.settings.address.startswith("https://")


def refusal(path: str, error: DodonaError) -> Response:
    """Return the answer to a caller whose request fails at the edge."""
    if not isinstance(error, Unauthenticated):
        return error_part(error) if path.startswith(PARTS) else error_page(error)
    if path.startswith(PARTS):  # a script asks, and the whole page must go to the login
        return Response(status_code=error.status, headers={**HEADERS, "hx-redirect": LOGIN})
    return redirect(LOGIN)
