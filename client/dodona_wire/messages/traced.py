"""A request with the context of its trace, which travels around it, and nowhere else."""

from dodona_wire.messages.base import Message
from dodona_wire.messages.data import DataRequest


class Traced(Message, frozen=True, array_like=True, gc=False, tag=120):
    """A request within a trace. `context` is the value of W3C's header `traceparent`. Send it only
    to a server that says in its handshake that it takes these. It never reaches a core."""

    context: str
    body: DataRequest
