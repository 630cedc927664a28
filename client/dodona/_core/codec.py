"""Frames: what travels in one WebSocket message, bytes ⇄ messages.

Owns: the wire version and the shape of a frame. Towards a server a frame is a list of
`(request id, message)`, 0 for a one-way message; from a server a list of `(request id, reply)`.
Many envelopes share a frame: encoding and decoding are one call each, however many they are.
"""

from typing import Final

import msgspec

from dodona._core.messages import CellMessage, DataReply, DataRequest
from dodona.errors import InvalidRequest

WIRE_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 << 20
ENVELOPES_MAX: Final = 65_535
"""In one frame towards a server: a few bytes can be an envelope, and one takes some hundred."""
ONE_WAY: Final = 0

RequestEnvelope = tuple[int, DataRequest | CellMessage]
ReplyEnvelope = tuple[int, DataReply]

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


def decode_replies(frame: bytes | memoryview) -> list[ReplyEnvelope]:
    """The envelopes of a frame that a client received. Raises InvalidRequest on anything else."""
    try:
        return _replies.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"garbled frame: {error}") from error
