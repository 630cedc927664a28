"""Run a protocol for a driver, and see each of its steps."""

from collections.abc import Callable
from typing import TypeVar, cast

from dodona._core.protocol.steps import Protocol, Step

Result = TypeVar("Result")


def watched(protocol: Protocol[Result], note: Callable[[Step], None]) -> Protocol[Result]:
    """Run a protocol, and note each of its steps before it is done."""
    try:
        step = next(protocol)
        while True:
            note(step)
            step = protocol.send((yield step))
    except StopIteration as end:
        return cast("Result", end.value)
    finally:
        protocol.close()
