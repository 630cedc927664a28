"""Answers to HTTP requests that need no web framework: health, and errors as problems.

Owns: their form. A server gives them before its pages exist (see `listener` and `front`).
Imports no web framework: such an import takes longer than the rest of a start.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from dodona_wire.errors import DodonaError
from dodona_wire.messages.base import Failure
from dodona_wire.messages.rest import JSON_TYPE, PROBLEM_TYPE, encode_problem, problem_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""ASGI's."""

OK: Final = 200


class AnswerLike(Protocol):
    """What is read of an answer; a web framework's responses have it, too."""

    status_code: int

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    @property
    def body(self) -> bytes | memoryview: ...


class Answer(msgspec.Struct):
    """One answer as a whole."""

    status_code: int
    content_type: str
    body: bytes

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """As ASGI and the door write them."""
        length = str(len(self.body)).encode()
        return [(b"content-length", length), (b"content-type", self.content_type.encode())]

    async def send(self, send: Send) -> None:
        """To whoever asked."""
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": self.body})


def problem_answer(failure: Failure) -> Answer:
    """A Failure as `application/problem+json`."""
    problem = problem_of(failure)
    return Answer(problem.status, PROBLEM_TYPE, encode_problem(problem))


def status_answer(status: str) -> Answer:
    """What a health page says if all is well."""
    return Answer(OK, JSON_TYPE, b'{"status":"%s"}' % status.encode())


def health_answer(reason: str | None, status: str) -> Answer:
    """`status`, or the reason why it is not so."""
    return status_answer(status) if reason is None else problem_answer(failure_for(reason))


def failure_for(reason: str) -> Failure:
    """Of a server that does not serve now."""
    return Failure("unavailable", reason)


def failure_of(error: DodonaError) -> Failure:
    """What an error says, as it travels."""
    return Failure(error.kind, error.message, error.attributes)
