"""Media types: which form a body has, which one a caller likes best, and typed decoding."""

from typing import Any

import msgspec
import pytest

from dodona.errors import InvalidRequest, NotAcceptable, SchemaViolation, UnsupportedMediaType
from dodona.schema import Column, TableSchema
from dodona_gateway.core.content import (
    STREAM_FORMS,
    TYPES,
    VALUE_FORMS,
    Form,
    decode_body,
    encode_body,
    form_of,
    wanted_form,
)
from dodona_gateway.core.json_values import given_rows

ALL: tuple[Form, ...] = ("json", "msgpack", "arrow")


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        ("application/json", "json"),
        ("application/json; charset=utf-8", "json"),
        (" Application/JSON ;x", "json"),
        ("application/msgpack", "msgpack"),
        ("application/x-msgpack", "msgpack"),
        ("application/vnd.msgpack", "msgpack"),
    ],
)
def test_the_content_type_header_decides_the_form_of_a_body(content_type: str, form: Form) -> None:
    assert form_of(content_type, VALUE_FORMS) == form


@pytest.mark.parametrize("form", STREAM_FORMS)
def test_every_form_is_recognized_by_its_own_media_type(form: Form) -> None:
    assert form_of(TYPES[form], STREAM_FORMS) == form
    assert wanted_form(TYPES[form], STREAM_FORMS) == form


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/x-ndjson", "multipart/form-data; boundary=x", "json"],
)
def test_a_missing_or_unsupported_content_type_is_refused(content_type: str | None) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json, application/msgpack"):
        form_of(content_type, VALUE_FORMS)


def test_the_default_content_type_of_curl_gets_a_hint_and_long_types_are_cut() -> None:
    with pytest.raises(UnsupportedMediaType, match="JSON with curl, use --json"):
        form_of("application/x-www-form-urlencoded", VALUE_FORMS)
    with pytest.raises(UnsupportedMediaType) as refused:
        form_of("x" * 100_000, VALUE_FORMS)
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "json"),
        ("", "json"),
        ("*/*", "json"),
        ("application/*", "json"),
        ("application/msgpack", "msgpack"),
        ("text/html, application/msgpack;q=0.5", "msgpack"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "json"),
        ("application/json;q=0.1, application/msgpack;q=0.2", "msgpack"),
        ("application/msgpack;q=0.2, application/json;q=0.2", "msgpack"),
        ("*/*;q=0.1, application/vnd.apache.arrow.stream", "arrow"),
        ("application/msgpack;q=0, */*;q=0.1", "json"),
        ("application/msgpack;q=nan, application/json;q=0.1", "json"),
        ("application/msgpack;q=x, application/json;q=0.1", "json"),
        ("application/msgpack;level=1;q=0.9, application/json;q=0.1", "msgpack"),
        ("APPLICATION/MSGPACK", "msgpack"),
    ],
)
def test_an_answer_has_the_form_that_is_liked_best(accept: str | None, form: Form) -> None:
    assert wanted_form(accept, ALL) == form


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", ",,,", "application/x-ndjson", "x" * 100_000]
)
def test_an_unsupported_accept_header_is_refused_with_the_supported_types(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json, application/msgpack") as refused:
        wanted_form(accept, ALL)
    assert len(refused.value.message) < 300


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[dict[str, Any]]
    count: int = 0
    values: Any = None


SCHEMA = TableSchema.parse([Column("k", "int64", "ascending"), Column("a", "any")])


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b'{"rows": [{"a": 1, "b": null}], "count": 2}', "json"),
        (msgspec.msgpack.encode({"rows": [{"a": 1, "b": None}], "count": 2}), "msgpack"),
    ],
)
def test_a_body_becomes_a_struct(content: bytes, form: Form) -> None:
    wanted = Wanted([{"a": 1, "b": None}], 2)
    assert decode_body(content, form, Wanted) == wanted
    assert decode_body(encode_body(wanted, form), form, Wanted) == wanted


def test_marks_are_read_also_where_they_are_written_with_escapes() -> None:
    for name in (b"$base64", rb"\u0024base64"):
        found = decode_body(b'{"rows": [{"a": {"%s": "/w=="}}]}' % name, "json", Wanted)
        assert given_rows(SCHEMA, found.rows, "//t", is_json=True) == [{"a": b"\xff"}]
        found = decode_body(b'{"rows": [], "values": {"%s": "/w=="}}' % name, "json", Wanted)
        assert found.values == b"\xff"


@pytest.mark.parametrize(
    "value", [{"$base64": "!"}, {"$base64": 1}, {"$double": 1}, [{"$dict": 1}]]
)
def test_a_mark_that_is_none_is_refused_by_its_column(value: Any) -> None:
    content = encode_body({"rows": [{}, {"a": value}]}, "json")
    rows = decode_body(content, "json", Wanted).rows
    with pytest.raises(SchemaViolation) as refused:
        given_rows(SCHEMA, rows, "//t", is_json=True)
    assert refused.value.attributes == {"column": "a", "row_index": 1, "table": "//t"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"\xff",
        b'{"rows": []}{}',
        b'{"rows": [], "x": 1}',
        b'{"rows": [1]}',
        b'{"rows": [], "count": 1.5}',
        b'{"rows": [{"a": "\\ud800"}]}',
        b'{"rows": [{"a": ' + b"[" * 5000,
        b'{"rows": [{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}]}",
        b'{"$rows": []}',
        b'{"$$rows": []}',
        b'{"rows": {"$double": "nan"}}',
        b'{"rows": [], "values": {"$base64": "!"}}',
        b'{"rows": [], "values": {"$base64": 1}}',
        b'{"rows": [], "values": [{"$double": 1}]}',
        b'{"$base64": "/w=="}',
    ],
)
def test_an_invalid_json_body_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_body(content, "json", Wanted)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\x81\xa4rows",
        b"\x81\xa4rows\xdd\x7f\xff\xff\xff",
        b"\x81\xa4rows\x91\x81\x01\x02",
        b"\x81\xa4rows\x91\x81\xa1a\x81\x80\x01",
        b"\x81\xa4rows\x91\x81\xa1a" + b"\x91" * 5000 + b"\x01",
        b"\x81\xa4rows\x91\x81\xa1a\xa1\xff",
        b"\x81\xa4rows\x91\x81\xa1a\xc7\x00\xff",
        b"\x81\xa4rows\x90\x01",
    ],
)
def test_an_invalid_msgpack_body_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_body(content, "msgpack", Wanted)


@pytest.mark.parametrize("form", VALUE_FORMS)
@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"rowss": []}, "unknown field `rowss`. Did you mean 'rows'?"),
        ({"rows": [], "Count": 1}, "unknown field `Count`. Did you mean 'count'?"),
        ({"rows": [], "colour": 1}, "unknown field `colour`"),
        ({"rows": [], "x" * 300: 1}, "x`"),
    ],
)
def test_a_misspelled_field_of_a_body_is_refused_with_the_one_that_was_meant(
    body: dict[str, Any], hint: str, form: Form
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_body(encode_body(body, form), form, Wanted)
    assert refused.value.message.endswith(hint)
