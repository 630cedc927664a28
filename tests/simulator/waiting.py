"""How callers of a run wait: for a while, or until something works.

Must not import: any core.
"""

from collections.abc import Callable

from dodona._core.protocol.steps import Pause, Protocol
from dodona.errors import DodonaError
from dodona_loadtest.histories.recorder import Recorder


def pause(db: Recorder, mean_us: int) -> Pause:
    """About so long."""
    return Pause(1 + int(db.random.expovariate(1 / mean_us) / 1000))


def until_it_works(attempt: Callable[[], Protocol[None]]) -> Protocol[None]:
    """Repeat what a caller would repeat."""
    while True:
        try:
            return (yield from attempt())
        except DodonaError:
            yield Pause(100)


def until_true(attempt: Callable[[], Protocol[bool]]) -> Protocol[None]:
    """Repeat what says that it was not done, or is refused."""
    while True:
        try:
            if (yield from attempt()):
                return
        except DodonaError:
            pass
        yield Pause(100)
