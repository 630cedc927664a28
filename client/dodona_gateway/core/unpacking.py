"""Unpack compressed bodies that come in pieces. Pure.

Owns: what a part of a body becomes when it is unpacked. A small body may stand for a large one. So
it is unpacked one piece at a time, and the caller counts the pieces. Clients that say "gzip" may
send zlib's own form too. YTsaurus's client sends brotli if it has the package.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

from dodona_wire.errors import InvalidRequest, UnsupportedMediaType

PIECE_BYTES_MAX: Final = 1 << 20
"""The largest unpacked piece; one of brotli may be twice as long."""
_ANY_HEADER: Final = 47
"""zlib's code for: the header may be zlib's or gzip's."""


class Unpacker(Protocol):
    """An unpacker, which takes parts of a body and yields their unpacked bytes in pieces of limited
    length."""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the pieces of a part. Take all of them before the next part. Raises
        InvalidRequest."""

    def finish(self) -> None:
        """Raise InvalidRequest if the body is incomplete."""


class _Plain:
    def feed(self, part: bytes) -> Iterator[bytes]:
        for at in range(0, len(part), PIECE_BYTES_MAX):
            yield part[at : at + PIECE_BYTES_MAX]

    def finish(self) -> None:
        """Do nothing: a plain body may end anywhere."""


class _Zlib:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ANY_HEADER)

    def feed(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._inflate.eof:  # a gzip body may have several members
                self._inflate = zlib.decompressobj(_ANY_HEADER)
            try:
                piece = self._inflate.decompress(part, PIECE_BYTES_MAX)
            except zlib.error as error:
                text = "The body is neither gzip nor zlib. Correct the header Content-Encoding."
                raise InvalidRequest(text) from error
            part = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    def finish(self) -> None:
        if not self._inflate.eof:
            raise InvalidRequest("The compressed body is cut. Send it whole.")


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
            text = "The body is not brotli. Correct the header Content-Encoding."
            raise InvalidRequest(text) from error
        return piece

    def finish(self) -> None:
        if not self._decompressor.is_finished():
            raise InvalidRequest("The compressed body is cut. Send it whole.")


def unpacker_of(encoding: str | None) -> Unpacker:
    """Return the unpacker for that value of the header `Content-Encoding`. Raises
    UnsupportedMediaType."""
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return _Plain()
    if name in ("gzip", "deflate", "zlib"):
        return _Zlib()
    if name == "br":
        return _Brotli()
    text = f"The header Content-Encoding is {name[:40]}. Use gzip, br or identity."
    raise UnsupportedMediaType(text)
