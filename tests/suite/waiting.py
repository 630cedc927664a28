"""How tests wait: for a condition, with an end that a correct program never reaches.

Owns: that end. It is far away, since a wait that succeeds costs only what it takes: a machine that
is busy, or stands still for seconds, must not fail a test that says nothing about time.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

WAIT_S_MAX: Final = 60.0
POLL_S: Final = 0.01
IN_VAIN: Final = "waited in vain"

Found = TypeVar("Found")


def wait_until(
    look: Callable[[], Found], why: str | Callable[[], object] = IN_VAIN, pause_s: float = POLL_S
) -> Found:
    """Look again and again, until what is found counts as true. → that.

    `why` says what is wrong if it never does, or what there is to see then. Between two looks there
    are `pause_s` seconds: what asks a server should leave it some time to do its work.
    """
    until_s = time.monotonic() + WAIT_S_MAX
    while not (found := look()):
        assert time.monotonic() < until_s, why if isinstance(why, str) else why()
        time.sleep(pause_s)
    return found


async def until(
    look: Callable[[], Found], why: str | Callable[[], object] = IN_VAIN, pause_s: float = 0.001
) -> Found:
    """As `wait_until` does, while the event loop goes on."""
    until_s = time.monotonic() + WAIT_S_MAX
    while not (found := look()):
        assert time.monotonic() < until_s, why if isinstance(why, str) else why()
        await asyncio.sleep(pause_s)
    return found


def with_enough_time(
    attempt: Callable[[int], object], least_ms: int, refusal: type[Exception]
) -> None:
    """Have something hold what expires unless it is renewed, with longer and longer times.

    Whatever stands still for longer than such a time loses what it holds, and rightly so: what is
    renewed outlives one of these times, and what is not outlives none. `refusal` is how the product
    says that it was lost: all else ends the test, a failed assertion, too.
    """
    for time_ms in (least_ms, 5 * least_ms):
        try:
            attempt(time_ms)
        except refusal:
            continue
        return
    attempt(25 * least_ms)


def quickest_s(call: Callable[[], object], count: int = 3) -> float:
    """How long the quickest of a few calls took: a pause of the machine makes some of them late."""
    took_s = []
    for _ in range(count):
        began_s = time.monotonic()
        call()
        took_s.append(time.monotonic() - began_s)
    return min(took_s)
