"""What a client protocol asks its driver to do. Pure.

A protocol is a generator: it yields a step, the driver carries it out and sends the replies in.
One text so serves the blocking, the asyncio, the embedded and the simulated driver. A protocol
never sees a transport error: a call that failed or timed out is a `Failure` among the replies.
"""

from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

from dodona_wire.messages.families import Reply, Request

Target = int
"""A cell's id, or one of the two below."""

MASTER: Final = -1
ORACLE: Final = -2


class Calls(msgspec.Struct, frozen=True, gc=False):
    """Send all these at once; resume with their replies, in the same order."""

    requests: tuple[tuple[Target, Request], ...]
    is_over_at_refusal: bool = False
    """A driver may resume at the first `Failure` of another kind than `unavailable`; requests that
    are unanswered by then get a `Failure` of kind `unavailable`, and may have arrived."""
    timeout_ms: int | None = None
    """A driver resumes by then; requests that are unanswered get a `Failure` that names the target,
    and says if the request never left."""


class Post(msgspec.Struct, frozen=True, gc=False):
    """Send these and resume at once with no replies: whether they arrive changes nothing now."""

    requests: tuple[tuple[Target, Request], ...]


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Resume after this long with no replies; with one if the caller's time is up (`deadline`)."""

    duration_ms: int


Step = Calls | Post | Pause
Result = TypeVar("Result")
Protocol = Generator[Step, list[Reply], Result]
