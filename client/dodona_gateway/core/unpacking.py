"""Bodies that come compressed, in pieces. Pure.

Owns: what a part of a body is once it is unpacked. A small body may stand for a large one, so it is
unpacked a piece at a time, and whoever takes the pieces counts them. Clients say "gzip" and mean
zlib's own form, too; YTsaurus's sends brotli where it has the package.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

from dodona_wire.errors import InvalidRequest, UnsupportedMediaType

PIECE_BYTES_MAX: Final = 1 << 20
"""Of an unpacked piece; brotli's may be twice as long."""
_ANY_HEADER: Final = 47
"""zlib's word for: of zlib or of gzip, whichever it is."""


class Unpacker(Protocol):
    """Takes parts of a body; gives what they stand for, in pieces of bounded length."""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """All pieces are to be taken before the next part. Raises InvalidRequest."""

    def finish(self) -> None:
        """Raises InvalidRequest if there should be more."""


class _Plain:
    def feed(self, part: bytes) -> Iterator[bytes]:
        for at in range(0, len(part), PIECE_BYTES_MAX):
            yield part[at : at + PIECE_BYTES_MAX]

    def finish(self) -> None:
        """It ends where it ends."""


class _Zlib:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ANY_HEADER)

    def feed(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._inflate.eof:  # gzip's members may follow each other
                self._inflate = zlib.decompressobj(_ANY_HEADER)
            try:
                piece = self._inflate.decompress(part, PIECE_BYTES_MAX)
            except zlib.error as error:
                raise InvalidRequest("the body is neither gzip nor zlib") from error
            part = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    def finish(self) -> None:
        if not self._inflate.eof:
            raise InvalidRequest("the compressed body ends too early")


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._error: Any = brotli.error
        self._decompressor = brotli.Decompressor()

    def feed(self, part: bytes) -> Iterator[bytes]:
        piece = self._process(part)
        while piece:
            yield piece
            piece = self._process(b"")

    def _process(self, part: bytes) -> bytes:
        try:
            piece: bytes = self._decompressor.process(part, output_buffer_limit=PIECE_BYTES_MAX)
        except self._error as error:
            raise InvalidRequest("the body is not brotli") from error
        return piece

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
