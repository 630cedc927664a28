"""What each driver refuses, over a network and embedded: a closed client, and another event loop.

Must not import anything of a network: an embedded database needs none, and starts without it.
"""

import asyncio
from typing import Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure

CLOSED: Final = Failure("invalid_request", "the client is closed")
"""Not of the kind `unavailable`: nothing was sent, and a retry is useless. It is a reply and not an
exception, because a commit in progress must end with an outcome, or with an unknown one."""


def check_loop(own: asyncio.AbstractEventLoop) -> None:
    """Check that the caller runs in this event loop, in the process that created it. Raises
    InvalidRequest."""
    try:
        is_own = asyncio.get_running_loop() is own
    except RuntimeError:
        is_own = False
    if not is_own:
        raise InvalidRequest(
            "This client belongs to another event loop. Create a client in each event loop."
        )
