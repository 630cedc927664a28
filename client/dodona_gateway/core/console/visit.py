"""Read a visit to the console from its headers: the token's cookie, and a form's origin. Pure.

Owns: the form and lifetime of the cookie, and which pages need no token. It also owns the rule for
a request that changes something: a page of this very origin must send it. A cookie's `SameSite`
stops other sites. It does not stop other ports of this host, which a browser takes for the same
site.
"""

from collections.abc import Iterable
from typing import Final

from dodona_wire.errors import Forbidden

PREFIX: Final = "/console"
PARTS: Final = "/console/parts/"
"""The paths of page parts, which the script of a page requests."""
LOGIN: Final = "/console/login"
LOGOUT: Final = "/console/logout"
STATIC: Final = "/console/static/"
STATIC_FILES: Final = (
    "console.css",
    "console.js",
    "htmx-4.0.1.min.js",
    "htmx-4.0.1.LICENSE.txt",
    "mark.svg",
)
OPEN_PATHS: Final = (LOGIN, LOGOUT, *[STATIC + it for it in STATIC_FILES])
"""The paths that are open to a caller without a valid token."""

WATCHED_PATHS: Final = frozenset(
    (
        *(PREFIX, f"{PREFIX}/transactions", f"{PREFIX}/recoveries"),
        *(f"{PARTS}cluster", f"{PARTS}transactions", f"{PARTS}recoveries"),
    )
)
"""The paths that show the state of the cluster, and no row."""

COOKIE: Final = "dodona_token"
COOKIE_SECONDS: Final = 12 * 3600
VALUE_LENGTH_MAX: Final = 256


def is_console(path: str) -> bool:
    """Return whether a path belongs to the console."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def is_watching(method: str, path: str) -> bool:
    """Return whether a request only looks at the state of the cluster."""
    return method in ("GET", "HEAD") and path in WATCHED_PATHS


def token_of(cookies: str | None) -> str | None:
    """Return the token in the value of the header `Cookie`, or None."""
    for pair in (cookies or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE and 0 < len(value) <= VALUE_LENGTH_MAX:
            return value
    return None


def authorization_of(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the value of the header `Authorization`. If there is none, and the path is one of the
    console, the token of the cookie makes it."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found.setdefault(name, value)
    authorization = found.get(b"authorization")
    if authorization is not None:
        return authorization.decode("latin-1")
    if not is_console(path):
        return None
    token = token_of(found.get(b"cookie", b"").decode("latin-1"))
    return None if token is None else f"Bearer {token}"


def set_cookie(token: str, *, is_secure: bool) -> str:
    """Return the header that makes a browser keep the token. Scripts can't read the cookie, and no
    other site sends it."""
    secure = "; Secure" if is_secure else ""
    return (
        f"{COOKIE}={token}; Path={PREFIX}; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict"
        f"{secure}"
    )


def clear_cookie(*, is_secure: bool) -> str:
    """Return the header that makes a browser forget the token."""
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}=; Path={PREFIX}; Max-Age=0; HttpOnly; SameSite=Strict{secure}"


def check_origin(origin: str | None, host: str | None, address: str) -> None:
    """Check that a page of this gateway sent a form. Its origin must be the host of the request, or
    the gateway's own `address`. Raises Forbidden."""
    own = [address.lower()]
    if host:
        own += [f"http://{host.lower()}", f"https://{host.lower()}"]
    if (origin or "").lower() not in own:
        raise Forbidden(
            "The form was not sent by a page of this console. Open the console and send it there."
        )
