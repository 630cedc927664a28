"""Bodies of rows as YTsaurus's client sends them: compressed, in pieces. Pure.

Owns: what a piece is once it is unpacked, and the bounds: a small body may stand for a large one.
The client says "gzip" and means zlib's own form, too; where it has the package, it sends brotli.
"""

import zlib
from typing import Any, Final, Protocol

from dodona.errors import InvalidRequest, LimitExceeded, UnsupportedMediaType

BODY_BYTES_MAX: Final = 64 << 20
"""Unpacked."""
ANY_HEADER: Final = 47
"""zlib's word for: of zlib or of gzip, whichever it is."""
STEP_BYTES: Final = 1 << 20


class Unpacker(Protocol):
    """Takes parts of a body; gives what they stand for."""

    def feed(self, part: bytes) -> bytes: ...

    def finish(self) -> None: ...


class _Plain:
    def feed(self, part: bytes) -> bytes:
        return part

    def finish(self) -> None:
        """It ends where it ends."""


class _Zlib:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(ANY_HEADER)

    def feed(self, part: bytes) -> bytes:
        pieces: list[bytes] = []
        size_bytes = 0
        try:
            while part and not self._inflate.eof:
                piece = self._inflate.decompress(part, STEP_BYTES)
                part = self._inflate.unconsumed_tail
                size_bytes += len(piece)
                check_size(size_bytes)
                pieces.append(piece)
        except zlib.error as error:
            raise InvalidRequest(f"the body is neither gzip nor zlib: {error}") from error
        return b"".join(pieces)

    def finish(self) -> None:
        if not self._inflate.eof:
            raise InvalidRequest("the compressed body ends too early")


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._brotli: Any = brotli
        self._decompressor = brotli.Decompressor()

    def feed(self, part: bytes) -> bytes:
        pieces: list[bytes] = []
        size_bytes = 0
        try:
            piece = self._decompressor.process(part, output_buffer_limit=STEP_BYTES)
            while piece:
                size_bytes += len(piece)
                check_size(size_bytes)
                pieces.append(piece)
                piece = self._decompressor.process(b"", output_buffer_limit=STEP_BYTES)
        except self._brotli.error as error:
            raise InvalidRequest(f"the body is not brotli: {error}") from error
        return b"".join(pieces)

    def finish(self) -> None:
        if not self._decompressor.is_finished():
            raise InvalidRequest("the compressed body ends too early")


def unpacker_of(encoding: str | None) -> Unpacker:
    """What unpacks a body with that header `Content-Encoding`. Raises UnsupportedMediaType."""
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return _Plain()
    if name in ("gzip", "deflate", "zlib"):
        return _Zlib()
    if name == "br":
        return _Brotli()
    text = f"a body's Content-Encoding is gzip, br or identity, not {name[:40]}"
    raise UnsupportedMediaType(text)


def check_size(size_bytes: int) -> None:
    """Raises LimitExceeded."""
    if size_bytes > BODY_BYTES_MAX:
        text = f"the rows of one command have at most {BODY_BYTES_MAX} bytes: send fewer at a time"
        raise LimitExceeded(text, bytes_max=BODY_BYTES_MAX)
