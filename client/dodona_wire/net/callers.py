"""Who may call a server at all, before it is asked who he is: programs, never pages in a browser.

Owns: the one rule, for every server. A page of any site can have the browser of somebody on this
machine send requests and open WebSockets to it. Browsers say so (`Origin`, `Sec-Fetch-Site`), and
a page whose own name was made to lead here calls by that name (`Host`). What a page may send
without being asked for permission has a type of a form or of text (`Content-Type`). Imports no web
framework. What a gateway's own pages may send is the console's rule.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from dodona_wire.errors import Forbidden, UnsupportedMediaType
from dodona_wire.net.addresses import is_loopback

READING: Final = ("GET", "HEAD")
JSON_TYPE: Final = "application/json"

Header = Callable[[str], str | None]
"""The value of a header, by its name in lower case."""


def check_program(header: Header, *, is_open: bool) -> None:
    """That no page of a browser asks. `is_open`: it takes no key, and only this machine reaches it.
    Raises Forbidden."""
    if header("origin") is not None or header("sec-fetch-site") not in (None, "none"):
        raise Forbidden("this server answers programs, and no pages in a browser")
    if is_open:
        check_name(header("host"))


def check_name(place: str | None) -> None:
    """That a server that takes no key is called by a name of this machine. Raises Forbidden."""
    if not is_local_place(place):
        raise Forbidden("without a key, or a token, a server answers to names of this machine only")


def is_local_place(place: str | None) -> bool:
    """Whether the value of the header `Host` is a name of this machine."""
    try:
        name = urlsplit(f"//{(place or '').lower()}").hostname
    except ValueError:  # a bracket is missing
        name = None
    return name is not None and is_loopback(name)


def check_own_page(header: Header, *, is_page: bool) -> None:
    """That a page that asks is one of this server's own; a page itself is also shown to those who
    follow a link to it. Raises Forbidden."""
    place, origin = (header("host") or "").lower(), header("origin")
    is_strange = origin is not None and origin.lower() not in (
        f"http://{place}",
        f"https://{place}",
    )
    if not is_page:
        is_strange |= header("sec-fetch-site") not in (None, "none", "same-origin")
    if is_strange:
        raise Forbidden("without tokens the gateway answers no pages of other servers")


def check_body(method: str, header: Header) -> None:
    """That a body is said to be JSON: no page may send that unasked. Raises
    UnsupportedMediaType."""
    has_body = header("content-length") not in (None, "0") or header("transfer-encoding")
    if method in READING or not has_body:
        return
    media = (header("content-type") or "nothing").partition(";")[0].strip().lower()
    if media != JSON_TYPE:
        text = f"the header Content-Type is {JSON_TYPE}, not {media[:100]}"
        raise UnsupportedMediaType(text)
