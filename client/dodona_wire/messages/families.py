"""Unions that say which messages of the other modules go where."""

from dodona_wire.messages.catalog import (
    Assignment,
    CatalogReply,
    CatalogRequest,
    Done,
    Heartbeat,
    RegisterProxy,
)
from dodona_wire.messages.data import DataReply, DataRequest
from dodona_wire.messages.replicas import ReplicaReply, ReplicaRequest

Reply = DataReply | CatalogReply | ReplicaReply
Request = DataRequest | CatalogRequest | ReplicaRequest
Announcement = Heartbeat | RegisterProxy
"""Messages that servers send to the master, again and again, about themselves."""
RpcRequest = DataRequest | Announcement | ReplicaRequest
"""Requests that are answered over the data plane."""
RpcReply = DataReply | Assignment | Done | ReplicaReply
