"""Name the kind of server in every answer, so that a client can report a wrong address.

Owns: the two headers, and the error of a client that reached another server than the master.
"""

from collections.abc import Mapping
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.net.urls import hide_password

ROLE: Final = "X-Dodona-Role"
MASTER: Final = "X-Dodona-Master"
"""The address of the server's master. Gateways do not send it, because any caller may ask them."""
TELL_MASTER: Final = ("proxy", "node")


def role_headers(settings: Any) -> list[tuple[str, str]]:
    """Return the headers for every answer of a server with these settings."""
    headers = [(ROLE, settings.server)] if settings.server else []
    if settings.server in TELL_MASTER:
        headers.append((MASTER, hide_password(str(settings.master_url))))
    return headers


def wrong_server(asked: str, headers: Mapping[str, str]) -> Failure | None:
    """Return the failure of a call for the master that reached another server. None if the master
    answered, or a process between them that does not name its role."""
    role = headers.get(ROLE)
    if role is None or role == "master":
        return None
    place = asked.removeprefix("the master at ")
    master = headers.get(MASTER)
    known = "connect to the master's address" if master is None else f"the master is at {master}"
    text = f"{place} is a {role} and not the master: {known}"
    if role == "gateway":
        text += "; to use REST, send HTTP requests to the gateway"
    attributes = {"url": place, "role": role} | ({} if master is None else {"master": master})
    return Failure(InvalidRequest.kind, text, attributes)
