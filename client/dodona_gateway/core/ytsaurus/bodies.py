"""Bodies as YTsaurus's client sends them: compressed, in pieces. Pure.

Owns: what a part of a body is once it is unpacked, and the bounds: a small body may stand for a
large one, and short text for many values. So a body is unpacked a piece at a time, and never held
as a whole. The client says "gzip" and means zlib's own form, too; where it has the package, it
sends brotli.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from dodona.errors import InvalidRequest, LimitExceeded, UnsupportedMediaType
from dodona_gateway.core.yson import Attributed

BODY_BYTES_MAX: Final = 64 << 20
"""Unpacked."""
VALUES_MAX: Final = 3_000_000
"""In the rows of one command, at all levels. Each takes about a hundred bytes of memory."""
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


def check_size(size_bytes: int, bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raises LimitExceeded."""
    if size_bytes > bytes_max:
        text = f"the body of this command has at most {bytes_max} bytes, unpacked: send less"
        raise LimitExceeded(text, bytes_max=bytes_max)


def count_values(rows: Iterable[Any]) -> int:
    """How many values there are in rows, at all levels. Raises InvalidRequest on what is no row."""
    count = 0
    for row in rows:
        if type(row) is not dict:
            raise InvalidRequest(f"a row is a map without attributes, not {_kind(row)}")
        count += len(row)
        for value in row.values():
            if type(value) in _NESTED:
                count += _count_inside(value)
    return count


_NESTED: Final = (dict, list, Attributed)


def _count_inside(value: Any) -> int:
    if type(value) is Attributed:
        return _count_inside(value.attributes) + _count_inside([value.value])
    inner = value.values() if type(value) is dict else value
    nested = [it for it in inner if type(it) in _NESTED]
    return len(value) + sum(map(_count_inside, nested))


def _kind(value: Any) -> str:
    return "#" if value is None else type(value).__name__


def check_values(count: int) -> None:
    """Raises LimitExceeded."""
    if count > VALUES_MAX:
        text = f"the rows of one command have at most {VALUES_MAX} values: send fewer at a time"
        raise LimitExceeded(text, values_max=VALUES_MAX)
