"""Render pages of the console: templates, filters, and the headers of every answer.

Owns: the environment of the templates, which escapes all values, the strict policy for browsers,
and the static files. Knows no page.
"""

import functools
import hashlib
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.console import shown
from dodona_gateway.core.console.visit import STATIC, STATIC_FILES
from dodona_gateway.shell.console import times
from dodona_wire.errors import DodonaError
from dodona_wire.rows.error_attributes import shown_attributes

PACKAGE: Final = "dodona_gateway.shell.console"
HTML: Final = "text/html; charset=utf-8"
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # otherwise a form would not send its origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of all answers."""
KEPT: Final = "public, max-age=31536000, immutable"
"""The header of static files: an address changes with its file."""
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_POSITIONS: Final = ("line", "character", "offset", "near")
"""Attributes of an error about its place in a text, which a page shows separately."""


@functools.cache
def static_file(name: str) -> tuple[bytes, str]:
    """Return the content of a static file, and the beginning of its hash."""
    assert name in STATIC_FILES
    content = files(PACKAGE).joinpath("static", name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def serve_static(name: str) -> Response:
    """Return the answer with a static file."""
    content, _ = static_file(name)
    headers = {**HEADERS, "cache-control": KEPT}
    return Response(content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])


def static_url(name: str) -> str:
    """Return the address of a static file."""
    return f"{STATIC}{name}?{static_file(name)[1]}"


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(static_url=static_url, version=version("dodona"))
    environment.tests.update(numeric=shown.is_numeric)
    environment.filters.update(
        value=shown.show_value,
        visible=shown.visible,
        visible_lines=shown.visible_lines,
        value_text=shown.cut_text,
        count=shown.show_count,
        size=shown.show_bytes,
        rate=shown.show_rate,
        duration=shown.show_duration,
        ratio=shown.show_ratio,
        moment=times.show_moment,
        clock=times.show_clock,
        time_of=times.show_time_of,
        picker=times.for_picker,
    )
    return environment


def render(name: str, principal: Principal | None, /, **given: Any) -> str:
    """Return the text of a template. `principal` is the caller, or None at the login."""
    return _environment().get_template(name).render(principal=principal, **given)


def page(name: str, principal: Principal | None, /, *, status: int = 200, **given: Any) -> Response:
    """Return a template as an answer."""
    return html(render(name, principal, **given), status)


def html(text: str, status: int = 200) -> Response:
    """Return an answer with the headers of all answers."""
    return Response(text, status, headers=HEADERS, media_type=HTML)


def redirect(path: str) -> Response:
    """Redirect to another page of the console, to be requested with GET."""
    return Response(status_code=303, headers={**HEADERS, "location": path})


def error_page(error: DodonaError, principal: Principal | None = None) -> Response:
    """Return a whole page about an error."""
    return page("error.html", principal, status=error.status, error=described(error))


def error_part(error: DodonaError) -> Response:
    """Return an error in the place of a part."""
    return page("parts/error.html", None, status=error.status, error=described(error))


def described(error: DodonaError) -> dict[str, Any]:
    """Return an error as templates show it: what happened, where, and what to do."""
    attributes = shown_attributes(error.attributes)
    return {
        "title": HTTPStatus(error.status).phrase,
        "kind": error.kind,
        "code": error.code,
        "status": error.status,
        "message": error.message,
        "is_retryable": error.is_retryable,
        "line": attributes.get("line"),
        "character": attributes.get("character"),
        "near": attributes.get("near"),
        "attributes": {name: value for name, value in attributes.items() if name not in _POSITIONS},
    }
