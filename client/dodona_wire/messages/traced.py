"""A request that somebody traces: the context of its trace travels around it, and nowhere else."""

from dodona_wire.messages.base import Message
from dodona_wire.messages.data import DataRequest


class Traced(Message, frozen=True, array_like=True, gc=False, tag=120):
    """`context` is what W3C's header `traceparent` would have. Sent only to a server that says in
    its handshake that it takes these; it never reaches a core."""

    context: str
    body: DataRequest
