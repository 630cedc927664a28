"""Check what kind of caller may call a server: programs may, pages in a browser may not.

Owns: this one rule, for every server. The check comes before authentication. A page of any site can
make a browser on this machine send requests and open WebSockets to the server. Browsers mark these
requests (`Origin`, `Sec-Fetch-Site`). A page whose own name was made to lead here calls by that
name (`Host`). Without permission, a page can send only a body with the type of a form or of text
(`Content-Type`). Imports no web framework. The console has the rule for a gateway's own pages.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from dodona_wire.errors import Forbidden, UnsupportedMediaType
from dodona_wire.net.addresses import is_loopback

READING: Final = ("GET", "HEAD")
JSON_TYPE: Final = "application/json"

Header = Callable[[str], str | None]
"""Returns the value of a header, by its name in lower case."""


def check_program(header: Header, *, is_open: bool) -> None:
    """Check that no page in a browser sends the request. `is_open` says that the server takes no
    key, and only this machine reaches it. Raises Forbidden."""
    if header("origin") is not None or header("sec-fetch-site") not in (None, "none"):
        raise Forbidden("this server answers programs only, not pages in a browser")
    if is_open:
        check_name(header("host"))


def check_name(place: str | None) -> None:
    """Check that the call names this machine, for a server that takes no key. Raises Forbidden."""
    if not is_local_place(place):
        raise Forbidden("without a key or a token, call this server as localhost or 127.0.0.1")


def is_local_place(place: str | None) -> bool:
    """Return whether the value of the header `Host` is a name of this machine."""
    try:
        name = urlsplit(f"//{(place or '').lower()}").hostname
    except ValueError:  # a bracket is missing
        name = None
    return name is not None and is_loopback(name)


def check_own_page(header: Header, *, is_page: bool) -> None:
    """Check that a page that sends a request is one of this server's own. A request for the page
    itself may also come from a link on another site. Raises Forbidden."""
    place, origin = (header("host") or "").lower(), header("origin")
    is_strange = origin is not None and origin.lower() not in (
        f"http://{place}",
        f"https://{place}",
    )
    if not is_page:
        is_strange |= header("sec-fetch-site") not in (None, "none", "same-origin")
    if is_strange:
        raise Forbidden("a gateway without tokens refuses requests from pages of other servers")


def check_body(method: str, header: Header) -> None:
    """Check that the header says that the body is JSON. No page may send that without permission.
    Raises UnsupportedMediaType."""
    has_body = header("content-length") not in (None, "0") or header("transfer-encoding")
    if method in READING or not has_body:
        return
    media = (header("content-type") or "nothing").partition(";")[0].strip().lower()
    if media != JSON_TYPE:
        text = f"the header Content-Type must be {JSON_TYPE}, not {media[:100]}"
        raise UnsupportedMediaType(text)
