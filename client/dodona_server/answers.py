"""Answers to HTTP requests without a web framework: health, and errors as problems.

Owns: the form of these answers. A server gives them before its pages exist (see `listener` and
`front`). Imports no web framework: such an import takes longer than the rest of a start.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from dodona_wire.messages.base import Failure
from dodona_wire.messages.rest import JSON_TYPE, PROBLEM_TYPE, encode_problem, problem_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application of ASGI."""

OK: Final = 200


class AnswerLike(Protocol):
    """The parts of an answer that are read. The responses of a web framework have them, too."""

    status_code: int

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    @property
    def body(self) -> bytes | memoryview: ...


class Answer(msgspec.Struct):
    """One whole answer."""

    status_code: int
    content_type: str
    body: bytes

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers, in the form of ASGI. `listener` writes them in this form, too."""
        length = str(len(self.body)).encode()
        return [(b"content-length", length), (b"content-type", self.content_type.encode())]

    async def send(self, send: Send) -> None:
        """Send the answer over ASGI."""
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": self.body})


def problem_answer(failure: Failure) -> Answer:
    """Return a Failure as `application/problem+json`."""
    problem = problem_of(failure)
    return Answer(problem.status, PROBLEM_TYPE, encode_problem(problem))


def status_answer(status: str) -> Answer:
    """Return the answer of a health page if all is well."""
    return Answer(OK, JSON_TYPE, b'{"status":"%s"}' % status.encode())


def health_answer(reason: str | None, status: str) -> Answer:
    """Return an answer with `status`, or with the reason against it."""
    return status_answer(status) if reason is None else problem_answer(failure_for(reason))


def failure_for(reason: str) -> Failure:
    """Return the Failure of a server that does not serve now."""
    return Failure("unavailable", reason)
