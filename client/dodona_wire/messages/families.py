"""Which messages go where: unions of those that the modules beside this one define."""

from dodona_wire.messages.catalog import (
    Assignment,
    CatalogReply,
    CatalogRequest,
    Done,
    Heartbeat,
    RegisterProxy,
)
from dodona_wire.messages.data import DataReply, DataRequest

Reply = DataReply | CatalogReply
Request = DataRequest | CatalogRequest
Announcement = Heartbeat | RegisterProxy
"""What servers tell the master of themselves, again and again."""
RpcRequest = DataRequest | Announcement
"""What is answered over the data plane."""
RpcReply = DataReply | Assignment | Done
