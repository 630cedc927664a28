"""A client protocol that a test takes through its requests one by one.

Owns: the pauses between a protocol's steps. Whatever is carried out goes to the real servers of
whatever back end; between two steps the test may do anything, so that a commit can be looked at
while its rows are prepared.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from dodona._core.protocol import steps
from dodona._core.protocol.steps import Calls, Pause, Post, Step, Target
from dodona.client import Client, Transaction
from dodona.errors import DodonaError
from dodona.types import Timestamp
from dodona_wire.messages.data import Decide
from dodona_wire.messages.families import Reply, Request

Result = TypeVar("Result")


class Stepwise(Generic[Result]):
    """One protocol under way. `step` is what it asks for next, None once it is over."""

    def __init__(self, client: Client, protocol: steps.Protocol[Result]) -> None:
        self._run = client._driver.run
        self._protocol = protocol
        self._results: list[Result] = []
        self._error: DodonaError | None = None
        self.step: Step | None = None
        self._go_on(lambda: next(protocol))

    @property
    def is_over(self) -> bool:
        return self.step is None

    def advance(self) -> None:
        """Carry out what it asks for, up to its next request."""
        assert self.step is not None, "it is over"
        replies = self._run(_carry_out(self.step))
        self._go_on(lambda: self._protocol.send(replies))

    def advance_to(self, kind: type[Request]) -> None:
        """Go on until it is about to send a request of that kind."""
        while not self.is_about_to_send(kind):
            self.advance()

    def is_about_to_send(self, kind: type[Request]) -> bool:
        assert self.step is not None, f"over, and no {kind.__name__} was sent: {self._error!r}"
        return any(isinstance(body, kind) for _, body in requests_of(self.step))

    def result(self) -> Result:
        """Go on to its end. → its result, or raises its error."""
        while self.step is not None:
            self.advance()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _go_on(self, resume: Callable[[], Step]) -> None:
        try:
            self.step = resume()
        except StopIteration as stop:
            self.step = None
            self._results.append(stop.value)
        except DodonaError as error:
            self.step = None
            self._error = error


def requests_of(step: Step) -> tuple[tuple[Target, Request], ...]:
    return () if isinstance(step, Pause) else step.requests


def _carry_out(step: Step) -> steps.Protocol[list[Reply]]:
    return (yield step)


def one_by_one(protocol: steps.Protocol[Result]) -> steps.Protocol[Result]:
    """The same protocol, but each of several requests is sent after the answer to the one before:
    one may see what lies between the prepares of two cells."""
    replies: list[Reply] | None = None
    while True:
        try:
            step = next(protocol) if replies is None else protocol.send(replies)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        replies = []
        if isinstance(step, Pause | Post):
            yield step
        else:
            for request in step.requests:
                replies += yield Calls((request,))


def prepare(client: Client, transaction: Transaction) -> Stepwise[Timestamp | None]:
    """Commit a transaction of several cells up to where all of them are prepared."""
    commit = Stepwise(client, client._session.commit(transaction._buffer))
    commit.advance_to(Decide)
    return commit
