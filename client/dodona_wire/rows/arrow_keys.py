"""Encode, decode, sort and cut the keys of a whole Arrow batch together.

Owns: the work that `keys` does on one key, done on columns, byte for byte the same. It makes no
Python object for each row. Encoded keys are one `pyarrow.Array` of type binary without nulls. If no
encoder made the bytes, `decode_key` says which error they have. numpy and pyarrow are imported on
first use: the light client works without them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NoReturn

from dodona_wire.errors import LimitExceeded, SchemaViolation
from dodona_wire.rows.arrow_bytes import (
    binary_of,
    flipped,
    has_zeros,
    numpy_module,
    views,
    width_of,
)
from dodona_wire.rows.keys import DESCENDING, NULL_TAGS, TAGS, decode_key
from dodona_wire.rows.row_rules import KEY_BYTES_MAX
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import Key

KEYS_BYTES_MAX: Final = (1 << 31) - 1
"""Bytes of all keys of a batch together: Arrow's binary type has room for no more."""
_PAYLOAD_BYTES: Final = {"int64": 8, "uint64": 8, "double": 8, "boolean": 1}
"""Bytes after the tag, for types that have the same length in every key: all types but text."""
_WORD_BYTES: Final = 8
_TEXT: Final = bytes([TAGS["string"]])
_TEXT_END: Final = b"\x00\x01"
_ZERO: Final = b"\x00"
_ESCAPED: Final = b"\x00\xff"
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1


# ---- from columns to keys


def encode_keys(schema: TableSchema, batch: Any) -> Any:
    """Return the key of each row of a record batch or table, which has the key columns in the
    Arrow types of their stored types. Other columns are ignored.

    Raises SchemaViolation with the column and the `row_index`, and LimitExceeded if the keys do not
    fit one array.
    """
    columns = schema.stored.key_columns
    _check_room(columns, batch)
    arrays = [_flat(batch.column(column.name)) for column in columns]
    for column, array in zip(columns, arrays, strict=True):
        if column.required and array.null_count:
            row = array.is_null().index(True).as_py()
            raise SchemaViolation("required column is null", column=column.name, row_index=row)
    if any(it.null_count for it in arrays) or any(it.type not in _PAYLOAD_BYTES for it in columns):
        keys = _joined([_encode(*it) for it in zip(columns, arrays, strict=True)])
    else:
        keys = _encode_plain(columns, arrays)
    _check_lengths(keys)
    return keys


def _flat(column: Any) -> Any:
    import pyarrow

    return column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column


def _check_room(columns: Sequence[Column], batch: Any) -> None:
    """Check the largest size that the keys may have, which they seldom have. Raises
    LimitExceeded."""
    size_bytes = 0
    for column in columns:
        if column.type in _PAYLOAD_BYTES:
            size_bytes += batch.num_rows * (1 + _PAYLOAD_BYTES[column.type])
        else:
            size_bytes += batch.num_rows * 3 + 2 * batch.column(column.name).nbytes
    if size_bytes > KEYS_BYTES_MAX:
        text = f"the keys of these rows may need more than {KEYS_BYTES_MAX} bytes: use fewer rows"
        raise LimitExceeded(text, row_count=batch.num_rows, size_bytes=size_bytes)


def _check_lengths(keys: Any) -> None:
    offsets, _ = views(keys)
    if offsets[-1] <= KEY_BYTES_MAX:
        return
    lengths = offsets[1:] - offsets[:-1]
    row = int(lengths.argmax())
    longest = int(lengths[row])
    if longest > KEY_BYTES_MAX:
        text = f"a key is longer than {KEY_BYTES_MAX} bytes"
        raise SchemaViolation(text, size_bytes=longest, row_index=row)


def _joined(parts: list[Any]) -> Any:
    import pyarrow
    import pyarrow.compute

    if len(parts) == 1:
        return parts[0]
    return pyarrow.compute.binary_join_element_wise(*parts, pyarrow.scalar(b""))


def _encode(column: Column, array: Any) -> Any:
    """Return one column's part of each key."""
    import pyarrow
    import pyarrow.compute

    if column.type in _PAYLOAD_BYTES:
        encoded = _encode_plain([column], [array])
    else:
        encoded = _encode_text(array.cast(pyarrow.binary()))
        if column.is_descending:
            encoded = flipped(encoded)
    if array.null_count == 0:
        return encoded
    null = pyarrow.scalar(bytes([NULL_TAGS[column.key_type]]))
    return pyarrow.compute.if_else(array.is_valid(), encoded, null)


def _encode_text(array: Any) -> Any:
    import pyarrow
    import pyarrow.compute

    if has_zeros(array):
        array = pyarrow.compute.replace_substring(array, _ZERO, _ESCAPED)
    tag, end, between = (pyarrow.scalar(it) for it in (_TEXT, _TEXT_END, b""))
    return pyarrow.compute.binary_join_element_wise(tag, array, end, between)


def _encode_plain(columns: Sequence[Column], arrays: Sequence[Any]) -> Any:
    """Encode columns without text, whose parts have one length. Nulls give any bytes."""
    numpy = numpy_module()
    row_count = len(arrays[0])
    width = sum(1 + _PAYLOAD_BYTES[column.type] for column in columns)
    rows = numpy.empty((row_count, width), "u1")
    at = 0
    for column, array in zip(columns, arrays, strict=True):
        payload = _payload(column, array)
        if column.is_descending:
            payload = ~payload
        rows[:, at] = TAGS[column.key_type]
        end = at + 1 + payload.itemsize
        rows[:, at + 1 : end].view(payload.dtype.newbyteorder(">"))[:, 0] = payload
        at = end
    return binary_of(rows)


def _payload(column: Column, array: Any) -> Any:
    """Return values as unsigned numbers that sort as the values do."""
    import pyarrow

    numpy = numpy_module()
    if array.null_count:
        array = array.fill_null(pyarrow.scalar(0).cast(array.type))
    values = array.to_numpy(zero_copy_only=False)
    if column.type == "boolean":
        return values.view("u1")
    if column.type == "uint64":
        return values
    if column.type == "int64":
        return values.view("u8") ^ numpy.uint64(_SIGN)
    is_nan = numpy.isnan(values)
    if is_nan.any():
        row = int(is_nan.argmax())
        text = "NaN is not allowed in a key"
        raise SchemaViolation(text, column=column.name, row_index=row)
    bits = (values + 0.0).view("u8")  # -0.0 becomes 0.0: they are equal keys
    is_negative = bits >> numpy.uint64(63)
    return bits ^ (numpy.uint64(0) - is_negative | numpy.uint64(_SIGN))


# ---- from keys to columns


def decode_keys(schema: TableSchema, keys: Any) -> list[Any]:
    """Return the key columns of whole keys, as arrays of the Arrow types of their stored types.
    Raises DataCorrupted on bytes that no encoder made."""
    types = schema.key_types
    offsets, data = views(keys)
    return _decode_plain(types, offsets, data) or _Decoding(keys, types, offsets, data).columns()


def _decode_plain(types: Sequence[str], offsets: Any, data: Any) -> list[Any] | None:
    """Decode keys without text and nulls; None if some key is not like that."""
    import pyarrow

    stored = [it.removeprefix(DESCENDING) for it in types]
    if any(it not in _PAYLOAD_BYTES for it in stored):
        return None
    width = sum(1 + _PAYLOAD_BYTES[it] for it in stored)
    if width_of(offsets) != width and len(offsets) > 1:
        return None
    rows = data.reshape(-1, width)
    arrays = []
    at = 0
    for key_type, column_type in zip(types, stored, strict=True):
        end = at + 1 + _PAYLOAD_BYTES[column_type]
        payload = rows[:, at + 1 : end]
        values, is_bad = _values(column_type, payload if key_type == column_type else ~payload)
        if (rows[:, at] != TAGS[key_type]).any() or is_bad.any():
            return None
        arrays.append(pyarrow.array(values))
        at = end
    return arrays


def _values(column_type: str, payload: Any) -> tuple[Any, Any]:
    """Return the values of rows of bytes, and which of them are invalid."""
    numpy = numpy_module()
    if column_type == "boolean":
        return payload[:, 0] == 1, payload[:, 0] > 1
    bits = payload.view(">u8")[:, 0].astype("u8")
    if column_type == "uint64":
        return bits, numpy.False_
    if column_type == "int64":
        return (bits ^ numpy.uint64(_SIGN)).view("i8"), numpy.False_
    is_positive = bits >> numpy.uint64(63)
    bits ^= is_positive - numpy.uint64(1) | numpy.uint64(_SIGN)
    values = bits.view("f8")
    return values, numpy.isnan(values) | (bits == numpy.uint64(_SIGN))


class _Bytes:
    """The bytes of all keys, as they are or flipped, and where texts end in them."""

    def __init__(self, data: Any) -> None:
        numpy = numpy_module()
        # Bytes after the last key are zeros, which are no tag and end every text.
        self.data = numpy.concatenate((data, numpy.zeros(2 * _WORD_BYTES, "u1")))

    @cached_property
    def stops(self) -> Any:
        """All 00 that are not part of an escaped 00: ends of texts, and some in numbers."""
        zeros = (self.data[:-1] == 0).nonzero()[0]
        return zeros[self.data[zeros + 1] != _ESCAPED[1]]


class _Decoding:
    """Keys of any types, decoded column by column. `_at` says how far each key was read."""

    def __init__(self, keys: Any, types: Sequence[str], offsets: Any, data: Any) -> None:
        self._keys = keys
        self._types = types
        self._raw = data
        self._at = offsets[:-1].astype("i8")
        self._ends = offsets[1:].astype("i8")

    @cached_property
    def _plain(self) -> "_Bytes":
        return _Bytes(self._raw)

    @cached_property
    def _flipped(self) -> "_Bytes":
        return _Bytes(~self._raw)

    def columns(self) -> list[Any]:
        arrays = [self._column(it) for it in self._types]
        self._check(self._at != self._ends)
        return arrays

    def _column(self, key_type: str) -> Any:
        column_type = key_type.removeprefix(DESCENDING)
        source = self._plain if column_type == key_type else self._flipped
        tags = source.data[self._at]
        is_null = tags == NULL_TAGS[column_type]
        self._check((self._at >= self._ends) | ~is_null & (tags != TAGS[column_type]))
        self._at += 1
        if column_type in _PAYLOAD_BYTES:
            return self._numbers(source, column_type, is_null)
        return self._texts(source, column_type, is_null)

    def _numbers(self, source: "_Bytes", column_type: str, is_null: Any) -> Any:
        import pyarrow

        numpy = numpy_module()
        size = _PAYLOAD_BYTES[column_type]
        windows = numpy.lib.stride_tricks.sliding_window_view(source.data, size)
        values, is_bad = _values(column_type, windows[self._at])
        self._at += numpy.where(is_null, 0, size)
        self._check(is_bad & ~is_null | (self._at > self._ends))
        values[is_null] = 0  # not bytes of the next key
        return pyarrow.array(values, mask=is_null)

    def _texts(self, source: "_Bytes", column_type: str, is_null: Any) -> Any:
        import pyarrow
        import pyarrow.compute

        numpy = numpy_module()
        starts = self._at
        stops = source.stops[source.stops.searchsorted(starts)]
        is_bad = (stops + 2 > self._ends) | (source.data[stops + 1] != _TEXT_END[1])
        self._check(is_bad & ~is_null)
        stops = numpy.where(is_null, starts, stops)
        self._at = numpy.where(is_null, starts, stops + 2)
        # Texts alternate with the bytes between them: every other item is taken.
        offsets = numpy.empty(2 * len(starts) + 1, "i4")
        offsets[:-1:2], offsets[1::2], offsets[-1] = starts, stops, self._raw.size
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(source.data)]
        turns = pyarrow.Array.from_buffers(pyarrow.binary(), 2 * len(starts), buffers)
        places = pyarrow.array(numpy.arange(0, 2 * len(starts), 2), mask=is_null)
        texts = turns.take(places)
        if has_zeros(texts):
            texts = pyarrow.compute.replace_substring(texts, _ESCAPED, _ZERO)
        if column_type == "string":
            return texts
        try:
            return texts.cast(pyarrow.string())
        except pyarrow.ArrowInvalid:
            self._refuse(0)

    def _check(self, is_bad: Any) -> None:
        if is_bad.any():
            self._refuse(int(is_bad.argmax()))

    def _refuse(self, row: int) -> NoReturn:
        """Raise the error of `decode_key` for the first bad key from this row on."""
        for place in range(row, len(self._keys)):
            decode_key(self._keys[place].as_py(), self._types)
        raise AssertionError("one key alone is decoded, and all together are not")


# ---- order


def first_disorder(keys: Any) -> int | None:
    """Return the place of the first key that is not above the one before it; None if they rise."""
    import pyarrow.compute

    rises = pyarrow.compute.less(keys.slice(0, max(len(keys) - 1, 0)), keys.slice(1))
    place: int = rises.index(False).as_py()
    return None if place < 0 else place + 1


def in_order(keys: Any) -> tuple[Any, Any]:
    """Return which rows to take so that their keys rise, and these keys. Rows are None for all, as
    they are. Of rows with one key, only the last one is taken."""
    if first_disorder(keys) is None:
        return None, keys
    order = order_of(keys)
    keys = _take(keys, order)
    is_last = last_of_each(keys)
    if is_last.true_count == len(keys):
        return order, keys
    return order.filter(is_last), keys.filter(is_last)


def first_repeated(keys: Any) -> tuple[int, int] | None:
    """Return the first row whose key an earlier row has, behind the row before it with that key.
    None if no key comes twice."""
    import pyarrow.compute

    order = order_of(keys)
    keys = _take(keys, order)
    rows = order.to_numpy()
    is_same = pyarrow.compute.equal(keys.slice(0, max(len(keys) - 1, 0)), keys.slice(1))
    places = is_same.to_numpy(zero_copy_only=False).nonzero()[0]
    if not places.size:
        return None
    place = places[rows[places + 1].argmin()]
    return int(rows[place]), int(rows[place + 1])


def last_of_each(keys: Any) -> Any:
    """Return as a mask which keys are the last of their equals. The keys are in order."""
    import pyarrow
    import pyarrow.compute

    if len(keys) == 0:
        return pyarrow.array([], pyarrow.bool_())
    differ = pyarrow.compute.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    return pyarrow.concat_arrays([differ, pyarrow.array([True])])


def _take(keys: Any, rows: Any) -> Any:
    """Return these rows' keys. Keys of one length move as numbers do, which is faster."""
    offsets, data = views(keys)
    width = width_of(offsets)
    if width is None:
        return keys.take(rows)
    return binary_of(data.reshape(-1, width).take(rows.to_numpy(), axis=0))


def order_of(keys: Any) -> Any:
    """Return the rows in the order of their keys; rows with one key keep their order.

    Numbers sort many times faster than bytes. So the rows are sorted first by the word of each key
    that says most. Only rows that stay tied are compared as bytes.
    """
    import pyarrow
    import pyarrow.compute

    numpy = numpy_module()
    words = _words(keys)
    order = words.argsort()
    words = words[order]
    is_tied = numpy.zeros(len(words) + 1, bool)
    is_tied[1:-1] = words[1:] == words[:-1]
    places = (is_tied[1:] | is_tied[:-1]).nonzero()[0]
    if places.size:
        rows = numpy.sort(order[places])
        tied = keys.take(pyarrow.array(rows))
        order[places] = rows[pyarrow.compute.array_sort_indices(tied).to_numpy()]
    return pyarrow.array(order)


def _words(keys: Any) -> Any:
    """Return eight bytes of each key, as a number: those after the common beginning of all keys. If
    all keys have one length, only bytes that differ count. No lower key has a greater number."""
    import pyarrow.compute

    numpy = numpy_module()
    offsets, data = views(keys)
    width = width_of(offsets)
    if width is not None:
        return _words_of_rows(data.reshape(-1, width))
    ends = pyarrow.compute.min_max(keys)
    shared = _shared_bytes(ends["min"].as_py() or b"", ends["max"].as_py() or b"")
    data = numpy.concatenate((data, numpy.zeros(_WORD_BYTES, "u1")))
    windows = numpy.lib.stride_tricks.sliding_window_view(data, _WORD_BYTES)
    starts = offsets[:-1].astype("i8") + shared
    words = windows[starts].view(">u8")[:, 0].astype("u8")
    foreign_bits = 8 * (_WORD_BYTES - (offsets[1:] - starts).clip(0, _WORD_BYTES)).astype("u8")
    # In two steps, because a number can't be shifted by all of its 64 bits in one.
    half = foreign_bits >> numpy.uint64(1)
    rest = foreign_bits - half
    return words >> half >> rest << half << rest


def _words_of_rows(rows: Any) -> Any:
    numpy = numpy_module()
    words = numpy.zeros((len(rows), _WORD_BYTES), "u1")
    filled = 0
    for at in range(rows.shape[1]):
        column = rows[:, at]
        if (column != column[0]).any():
            words[:, filled] = column
            filled += 1
            if filled == _WORD_BYTES:
                break
    return words.view(">u8")[:, 0].astype("u8")


def _shared_bytes(left: bytes, right: bytes) -> int:
    """Return how many first bytes two keys share, and so all keys between them."""
    at = 0
    while at < min(len(left), len(right)) and left[at] == right[at]:
        at += 1
    return at


# ---- tablets


def cut_at(keys: Any, pivots: Sequence[Key]) -> list[tuple[int, int, int]]:
    """Cut keys that are in order, by tablet: `(place of the pivot, start, end)` for each tablet
    that has some of them. The first pivot is below every key."""
    cuts = []
    start, row_count = 0, len(keys)
    while start < row_count:
        place = bisect_right(pivots, _key_of(keys[start])) - 1
        end = row_count
        if place + 1 < len(pivots):
            end = bisect_left(keys, pivots[place + 1], start, key=_key_of)
        cuts.append((place, start, end))
        start = end
    return cuts


def _key_of(scalar: Any) -> Key:
    return Key(scalar.as_py())
