"""What a client protocol asks its driver to do. Pure.

A protocol is a generator. It yields a step, and the driver executes the step and sends the replies
back. So the same code runs with the blocking, the asyncio, the embedded and the simulated driver.
A protocol never sees a transport error. A call that failed or timed out is a `Failure` in the
replies.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

import msgspec

from dodona_wire.messages.families import Reply, Request

Target = int
"""The id of a cell, or MASTER or ORACLE."""

MASTER: Final = -1
ORACLE: Final = -2


class Calls(msgspec.Struct, frozen=True, gc=False):
    """Send all requests together, and resume with their replies in the same order."""

    requests: tuple[tuple[Target, Request], ...]
    is_over_at_refusal: bool = False
    """Allow the driver to resume at the first `Failure` of a kind other than `unavailable`.
    Requests without an answer then get a `Failure` of kind `unavailable`, and may have arrived."""
    timeout_ms: int | None = None
    """After this time a driver resumes. Requests without an answer get a `Failure`, which names the
    target and says if the request never left."""
    meanwhile: Callable[[], None] | None = None
    """What to compute while the servers work. A driver may call it once, after the requests have
    left, or not at all. Its errors go to the caller, and the protocol is closed."""


class Post(msgspec.Struct, frozen=True, gc=False):
    """Send the requests and resume immediately, with no replies. Whether they arrive changes
    nothing now."""

    requests: tuple[tuple[Target, Request], ...]


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Resume after `duration_ms` with no replies. One reply means that the caller's time is over:
    see `deadline`."""

    duration_ms: int


Step = Calls | Post | Pause
Result = TypeVar("Result")
Protocol = Generator[Step, list[Reply], Result]
