"""What kind of server answers: every answer says it, so that a wrong address is told as such.

Owns: the two headers, and the error of a client that was given another server than the master.
"""

from collections.abc import Mapping
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.net.urls import hide_password

ROLE: Final = "X-Dodona-Role"
MASTER: Final = "X-Dodona-Master"
"""Where the server's master is. Gateways do not say it: anybody may ask them."""
TELL_MASTER: Final = ("proxy", "node")


def role_headers(settings: Any) -> list[tuple[str, str]]:
    """Of every answer of a server with these settings."""
    headers = [(ROLE, settings.server)] if settings.server else []
    if settings.server in TELL_MASTER:
        headers.append((MASTER, hide_password(str(settings.master_url))))
    return headers


def wrong_server(asked: str, headers: Mapping[str, str]) -> Failure | None:
    """The failure of a call that was meant for the master and met another server; None if the
    master answered, or something in between that does not say what it is."""
    role = headers.get(ROLE)
    if role is None or role == "master":
        return None
    place = asked.removeprefix("the master at ")
    master = headers.get(MASTER)
    known = "connect to the master's address" if master is None else f"the master is at {master}"
    text = f"{place} is a {role} and not the master: {known}"
    if role == "gateway":
        text += "; programs that know REST only use the gateway over HTTP"
    attributes = {"url": place, "role": role} | ({} if master is None else {"master": master})
    return Failure(InvalidRequest.kind, text, attributes)
