"""Encode record batches as pieces of an answer: Arrow, MessagePack, or lines of JSON. Pure.

Owns: how the columns of a table become rows again. In Arrow no row becomes a Python object.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from dodona_gateway.core.arrow_stream import END
from dodona_gateway.core.content import Form
from dodona_gateway.core.json_values import convert_rows, converters, text_converters
from dodona_wire.rows.arrow import arrow_schema
from dodona_wire.rows.logical_arrow import values_of
from dodona_wire.rows.schema import TableSchema


class BatchEncoder(Protocol):
    """The encoder of one answer, from its first piece to its end."""

    def encode(self, batch: Any) -> bytes: ...

    def end(self) -> bytes: ...


class _Arrow:
    """The encoder of Arrow. An answer without batches still has its schema."""

    def __init__(self, schema: TableSchema, columns: Sequence[str] | None) -> None:
        shown = arrow_schema(schema)
        if columns is not None:
            schema.column_mask(columns)  # raises if one is missing
            shown = shown.empty_table().select(list(columns)).schema
        self._head = bytes(shown.serialize())

    def encode(self, batch: Any) -> bytes:
        head, self._head = self._head, b""
        return head + bytes(batch.serialize())

    def end(self) -> bytes:
        head, self._head = self._head, b""
        return head + END


class _Rows:
    """The base of encoders that write one row after the other. In Arrow, columns of type any hold
    MessagePack."""

    def __init__(self, schema: TableSchema) -> None:
        self._any_names = [it.name for it in schema.columns if it.type == "any"]
        self._loaded = {
            it.name: it.logical
            for it in schema.columns
            if it.logical.form == "uuid" or it.logical.members
        }
        """Columns whose values in Arrow are not those of users."""

    def rows(self, batch: Any) -> list[dict[str, Any]]:
        loaded, names = self._loaded, batch.schema.names
        columns = {
            it: values_of(loaded[it], batch.column(it))
            if it in loaded
            else batch.column(it).to_pylist()
            for it in names
        }
        for name in self._any_names:
            if name in columns:
                unpack = msgspec.msgpack.decode
                columns[name] = [None if it is None else unpack(it) for it in columns[name]]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def end(self) -> bytes:
        return b""


class _Packed(_Rows):
    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self._convert = text_converters(schema.columns)

    def encode(self, batch: Any) -> bytes:
        encode = msgspec.msgpack.Encoder().encode
        return b"".join([encode(row) for row in convert_rows(self.rows(batch), self._convert)])


class _Lines(_Rows):
    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self._convert = converters(schema.columns)

    def encode(self, batch: Any) -> bytes:
        rows = convert_rows(self.rows(batch), self._convert)
        return msgspec.json.Encoder().encode_lines(rows)


def encoder_of(form: Form, schema: TableSchema, columns: Sequence[str] | None) -> BatchEncoder:
    """Return the encoder of an answer of this form. Raises SchemaViolation."""
    if form == "arrow":
        return _Arrow(schema, columns)
    return _Packed(schema) if form == "msgpack" else _Lines(schema)
