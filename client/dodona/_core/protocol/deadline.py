"""Limit the time of one call, for all of its waits together. Pure: the caller passes the clock.

Owns: how a protocol ends whose time is over. The protocol is not cut off, since it must report the
outcome of its requests. From then on, requests get no answer, and pauses report that no time is
left. So the protocol ends as it does with silent servers: with `Unavailable`, or with
`CommitOutcomeUnknown` if it sent a commit.
The error names the server that delayed the call: the first one that was silent and has not answered
since. It does not name a server that was asked in the little time that was left.
"""

from typing import Final, TypeGuard, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dodona._core.protocol.arguments import check_number
from dodona._core.protocol.context import NAMING_ATTRIBUTES
from dodona._core.protocol.retry import ROUNDING_US, InstantClock
from dodona._core.protocol.steps import Calls, Pause, Post, Protocol, Step, Target
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Decide
from dodona_wire.messages.families import Reply
from dodona_wire.messages.traced import Traced

CALL_TIMEOUT_MS_MAX: Final = 86_400_000
HURRIED_PART: Final = 10
"""A server that had less than a tenth of the time before is not blamed for its silence."""
_NAMES: Final = ("address", "cell", "server")

Result = TypeVar("Result")


def check_timeout(timeout_ms: int, name: str = "timeout_ms") -> None:
    """Check a timeout in milliseconds. Raises InvalidRequest."""
    check_number(timeout_ms, name, 1, CALL_TIMEOUT_MS_MAX)


def bounded(
    protocol: Protocol[Result], timeout_ms: int, instant_us: InstantClock
) -> Protocol[Result]:
    """Return the same protocol, limited to about `timeout_ms` from now on. Raises
    InvalidRequest."""
    check_timeout(timeout_ms)
    return _bounded(protocol, _Deadline(timeout_ms, instant_us))


def _bounded(protocol: Protocol[Result], deadline: "_Deadline") -> Protocol[Result]:
    replies: list[Reply] | None = None
    try:
        while True:
            step = protocol.send(replies)  # type: ignore[arg-type]  # None at first
            replies = yield from deadline.carry_out(step)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    except (CommitOutcomeUnknown, Unavailable) as error:
        deadline.name_server(error)
        raise
    finally:
        protocol.close()


class _Silent(Struct, frozen=True, gc=False):
    """A server that did not answer."""

    target: Target
    failure: Failure
    since_us: int
    """When the client sent the first request that the server did not answer."""


class _Deadline:
    """The time limit of one call."""

    def __init__(self, timeout_ms: int, instant_us: InstantClock) -> None:
        self._timeout_ms = timeout_ms
        self._instant_us = instant_us
        self._began_us = instant_us()
        self._end_us = self._began_us + timeout_ms * 1000
        self._answered: set[Target] = set()
        """The servers that have answered a request of this call."""
        self._silent: _Silent | None = None
        """The silent server to name. It is the first one that a failure named and that has not
        answered since. Until there is such a server, it is the first silent one."""

    def carry_out(self, step: Step) -> Protocol[list[Reply]]:
        """Yield the step with the time that is left. If no time is left, answer it here."""
        began_us = self._instant_us()
        left_ms = (self._end_us - began_us) // 1000
        if type(step) is Calls:
            if left_ms <= 0:
                return (yield from self._refuse(step))
            replies = yield replace(step, timeout_ms=left_ms)
            replies = self._without_hurried(step, replies, began_us)
            self._note(step, replies, began_us)
            return replies
        if type(step) is Pause:
            if left_ms > 0:
                yield Pause(min(step.duration_ms, left_ms))
            return [self._late(is_sent=False)] if self._instant_us() >= self._end_us else []
        return (yield step)

    def name_server(self, error: DodonaError) -> None:
        """Add the silent server to the error, if the error names none."""
        if error.attributes.keys().isdisjoint(_NAMES):
            error.attributes.update(self._where())

    def _where(self) -> dict[str, object]:
        """Return only the attributes that name the silent server. Other attributes of its failure
        are about another request."""
        found = {} if self._silent is None else self._silent.failure.attributes
        return {name: found[name] for name in NAMING_ATTRIBUTES if name in found}

    def _note(self, step: Calls, replies: list[Reply], began_us: int) -> None:
        for (target, _), reply in zip(step.requests, replies, strict=True):
            known = self._silent
            if not _is_silence(reply):
                self._answered.add(target)
                if known is not None and known.target == target:
                    self._silent = None
            elif "timeout_ms" in reply.attributes:
                continue  # made here: it says nothing about this server
            elif known is None or (_names(reply) and not _names(known.failure)):
                self._silent = _Silent(target, reply, began_us)

    def _without_hurried(self, step: Calls, replies: list[Reply], began_us: int) -> list[Reply]:
        """Return the replies without blame for servers that had too little time."""
        now_us = self._instant_us()
        if now_us + ROUNDING_US < self._end_us:
            return replies
        return [
            self._late(is_sent=reply.attributes.get("is_sent", True))
            if _is_silence(reply) and self._was_hurried(target, began_us, now_us)
            else reply
            for (target, _), reply in zip(step.requests, replies, strict=True)
        ]

    def _was_hurried(self, target: Target, began_us: int, now_us: int) -> bool:
        """Return whether a server had too little time for its last answer. It had too little if the
        silent server took longer. Without a silent server, this is about servers that have answered
        in this call: less than a tenth of the time before is too little."""
        had_us, silent = now_us - began_us, self._silent
        if silent is not None:
            return target != silent.target and had_us < began_us - silent.since_us
        return target in self._answered and had_us * HURRIED_PART < began_us - self._began_us

    def _refuse(self, step: Calls) -> Protocol[list[Reply]]:
        """Refuse the requests, but send decisions: cells hold locks until they receive a
        decision."""
        decisions = tuple([it for it in step.requests if _is_decision(it[1])])
        if decisions:
            yield Post(decisions)
        return [self._late(is_sent=_is_decision(body)) for _, body in step.requests]

    def _late(self, *, is_sent: bool) -> Failure:
        """Return the reply to a request for which no time was left."""
        text = f"This call has reached its timeout of {self._timeout_ms} ms"
        if self._silent is not None:
            text = f"{text}: {self._silent.failure.message}"
        attributes = {**self._where(), "timeout_ms": self._timeout_ms}
        if not is_sent:
            attributes["is_sent"] = False
        return Failure("unavailable", text, attributes)


def _is_silence(reply: Reply) -> TypeGuard[Failure]:
    return type(reply) is Failure and reply.kind == "unavailable"


def _names(failure: Failure) -> bool:
    return not failure.attributes.keys().isdisjoint(_NAMES)


def _is_decision(body: object) -> bool:
    return type(body.body if type(body) is Traced else body) is Decide
