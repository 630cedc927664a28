"""Frames: what travels in one WebSocket message, bytes ⇄ messages.

Owns: the wire version and the shape of a frame. Towards a server a frame is a list of
`(request id, message)`, 0 for a one-way message; from a server a list of `(request id, reply)`.
Many envelopes share a frame: encoding and decoding are one call each, however many they are.
"""

from typing import Final

import msgspec

from dodona._core.messages import CellMessage, DataReply, DataRequest, Traced
from dodona.errors import InvalidRequest

WIRE_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 << 20
ENVELOPES_MAX: Final = 65_535
"""In one frame towards a server: a few bytes can be an envelope, and one takes some hundred."""
ONE_WAY: Final = 0

TRACES_HEADER: Final = "x-dodona-traces"
"""In a server's handshake: it takes requests with the context of a trace."""

RequestEnvelope = tuple[int, DataRequest | CellMessage | Traced]
ReplyEnvelope = tuple[int, DataReply]

_GOODBYE: Final = b"heard "
_LONG_ARRAY: Final = b"\xdd"
"""How MessagePack opens an array of more than `ENVELOPES_MAX`."""

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(list[RequestEnvelope])
_replies: Final = msgspec.msgpack.Decoder(list[ReplyEnvelope])

encode_frame = _encoder.encode


def decode_requests(frame: bytes | memoryview) -> list[RequestEnvelope]:
    """The envelopes of a frame that a server received. Raises InvalidRequest on anything else."""
    if frame[:1] == _LONG_ARRAY:
        raise InvalidRequest(f"more than {ENVELOPES_MAX} envelopes in one frame")
    try:
        return _requests.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"garbled frame: {error}") from error


def goodbye(newest_id: int) -> bytes:
    """What a server that is about to stop says as it closes a connection: which was the newest
    request that it looked at. Later ones are as good as never sent."""
    return _GOODBYE + str(newest_id).encode()


def newest_of_goodbye(reason: str | None) -> int | None:
    """The id in it, if it is one."""
    name, _, number = (reason or "").partition(" ")
    is_goodbye = f"{name} ".encode() == _GOODBYE and number.isascii() and number.isdecimal()
    return int(number[:20]) if is_goodbye else None


def decode_replies(frame: bytes | memoryview) -> list[ReplyEnvelope]:
    """The envelopes of a frame that a client received. Raises InvalidRequest on anything else."""
    try:
        return _replies.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"garbled frame: {error}") from error
