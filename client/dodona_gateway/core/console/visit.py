"""Who visits the console, as far as headers say it: the token's cookie, and where a form came from.
Pure.

Owns: the cookie's form and life, which pages need no token, and the rule for what changes
something: it comes from a page of this very origin. A cookie's `SameSite` stops other sites, but
not other ports of this host, which a browser takes for the same site.
"""

from collections.abc import Iterable
from typing import Final

from dodona_wire.errors import Forbidden

PREFIX: Final = "/console"
PARTS: Final = "/console/parts/"
"""What is asked for by a page's script, and is a part of that page."""
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
"""For those who have no token yet, or none that is good."""

WATCHED_PATHS: Final = frozenset(
    (
        *(PREFIX, f"{PREFIX}/transactions", f"{PREFIX}/recoveries"),
        *(f"{PARTS}cluster", f"{PARTS}transactions", f"{PARTS}recoveries"),
    )
)
"""What shows the state of the cluster, and no row."""

COOKIE: Final = "dodona_token"
COOKIE_SECONDS: Final = 12 * 3600
VALUE_LENGTH_MAX: Final = 256


def is_console(path: str) -> bool:
    """Whether a path is the console's."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def is_watching(method: str, path: str) -> bool:
    """Whether a request only looks at the state of the cluster."""
    return method in ("GET", "HEAD") and path in WATCHED_PATHS


def token_of(cookies: str | None) -> str | None:
    """The token in the value of the header `Cookie`."""
    for pair in (cookies or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE and 0 < len(value) <= VALUE_LENGTH_MAX:
            return value
    return None


def authorization_of(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The value of the header `Authorization`; for the console's pages, if there is none, what the
    cookie makes it."""
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
    """The header that has a browser keep it. No script sees it, and no other site sends it."""
    secure = "; Secure" if is_secure else ""
    return (
        f"{COOKIE}={token}; Path={PREFIX}; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict"
        f"{secure}"
    )


def clear_cookie(*, is_secure: bool) -> str:
    """The header that has a browser forget it."""
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}=; Path={PREFIX}; Max-Age=0; HttpOnly; SameSite=Strict{secure}"


def check_origin(origin: str | None, host: str | None, address: str) -> None:
    """That a form was sent by a page of this gateway, by the name that it was called by or by its
    own `address`. Raises Forbidden."""
    own = [address.lower()]
    if host:
        own += [f"http://{host.lower()}", f"https://{host.lower()}"]
    if (origin or "").lower() not in own:
        raise Forbidden(
            "this was not sent by a page of this console: open the console and send it from there"
        )
