"""The base of all messages, and the failure that may answer any request."""

from typing import Any

import msgspec

from dodona_wire.errors import DodonaError


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages. `gc=False`: they never form cycles for the garbage collector."""


class Failure(Message, frozen=True, array_like=True, gc=False, tag=38):
    """A typed error on its way to the caller: `kind` is a key of `errors.ERRORS_BY_KIND`."""

    kind: str
    message: str
    attributes: dict[str, Any] = {}


def failure_of(error: DodonaError) -> Failure:
    """Return an error as a Failure, the form in which it is sent."""
    return Failure(error.kind, error.message, error.attributes)
