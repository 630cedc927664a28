"""Frames: what travels in one WebSocket message, bytes ⇄ messages.

Owns: the wire version and the form of a frame. A frame to a server is a list of `(request id,
message)`, with 0 for a one-way message. A frame from a server is a list of `(request id, reply)`.
Many envelopes share a frame, because encoding and decoding are one call each for all of them.
Messages only grow, at their ends. The default of a new field has the meaning of the older form, and
new messages get new numbers. So neighbouring releases understand each other under one wire version.
"""

from typing import Any, Final, get_args

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.families import RpcReply, RpcRequest
from dodona_wire.messages.traced import Traced

WIRE_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 << 20
ENVELOPES_MAX: Final = 65_535
"""Envelopes in one frame to a server. A few bytes can be an envelope, which takes some hundred."""
ONE_WAY: Final = 0

TRACES_HEADER: Final = "x-dodona-traces"
"""In a server's handshake: the server takes requests with the context of a trace."""

ANNOUNCEMENTS_HEADER: Final = "x-dodona-announcements"
"""In a master's handshake: the master takes `Announcement` over this connection."""

RequestEnvelope = tuple[int, RpcRequest | CellMessage | Traced]
ReplyEnvelope = tuple[int, RpcReply]

_GOODBYE: Final = b"heard "
_LONG_ARRAY: Final = b"\xdd"
"""The first byte of a MessagePack array of more than `ENVELOPES_MAX` items."""

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(list[RequestEnvelope])
_bare: Final = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])
_request: Final = msgspec.msgpack.Decoder(RpcRequest | CellMessage | Traced)
_fields: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NUMBERS: Final = frozenset(
    [it.__struct_config__.tag for it in (*get_args(RpcRequest), *get_args(CellMessage))]
)
_TRACED_NUMBER: Final = Traced.__struct_config__.tag
_replies: Final = msgspec.msgpack.Decoder(list[ReplyEnvelope])

encode_frame = _encoder.encode


def decode_requests(frame: bytes | memoryview) -> list[RequestEnvelope]:
    """Return the envelopes of a frame to a server. Raises InvalidRequest on anything else."""
    if frame[:1] == _LONG_ARRAY:
        raise InvalidRequest(f"more than {ENVELOPES_MAX} envelopes in one frame")
    try:
        return _requests.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"garbled frame: {error}") from error


def known_requests(frame: bytes | memoryview) -> tuple[list[RequestEnvelope], list[int]]:
    """Read a frame that `decode_requests` refused. Return the envelopes with messages of this
    release, and the ids of those with messages of another one. Raises InvalidRequest if there is
    none of another: then the frame is garbled."""
    if frame[:1] == _LONG_ARRAY:
        raise InvalidRequest(f"more than {ENVELOPES_MAX} envelopes in one frame")
    known: list[RequestEnvelope] = []
    strange: list[int] = []
    try:
        for request_id, body in _bare.decode(frame):
            if _number_of(body) in _NUMBERS:
                known.append((request_id, _request.decode(body)))
            else:
                strange.append(request_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise InvalidRequest(f"garbled frame: {error}") from error
    if not strange:
        raise InvalidRequest("garbled frame")
    return known, strange


def _number_of(body: msgspec.Raw) -> Any:
    """Return the number of the message, also within a trace. No message has 0 or less."""
    fields = _fields.decode(body)
    number = msgspec.msgpack.decode(fields[0], type=int)
    return _number_of(fields[2]) if number == _TRACED_NUMBER else number


def goodbye(newest_id: int) -> bytes:
    """Return the text with which a server that is about to stop closes a connection. It names the
    newest request that the server looked at. Later ones count as never sent."""
    return _GOODBYE + str(newest_id).encode()


def newest_of_goodbye(reason: str | None) -> int | None:
    """Return the id in that text, None if it is another text."""
    name, _, number = (reason or "").partition(" ")
    is_goodbye = f"{name} ".encode() == _GOODBYE and number.isascii() and number.isdecimal()
    return int(number[:20]) if is_goodbye else None


def decode_replies(frame: bytes | memoryview) -> list[ReplyEnvelope]:
    """Return the envelopes of a frame to a client. Raises InvalidRequest on anything else."""
    try:
        return _replies.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"garbled frame: {error}") from error
