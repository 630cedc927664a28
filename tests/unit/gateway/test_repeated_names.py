"""A name that comes twice in one object: refused by every way in, with its row and its name.

JSON, MessagePack and YSON have no word against it, and their readers keep the last member. See
couchdb-python's issue 32, and tinydb's 290.
"""

import json
from collections.abc import Callable
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column
from dodona_gateway.core.content import decode_body
from dodona_gateway.core.requests import InsertRows, LookupRows, parse_bound
from dodona_gateway.core.row_stream import LinesOfJson, PackedRows
from dodona_wire.rows.json_text import decode_json, repeated_name
from dodona_wire.rows.packed_names import repeated_in_packed
from dodona_wire.rows.text_format import value_of_text
from dodona_ytsaurus.terms.parameters import decode_parameters
from dodona_ytsaurus.yson import RowReader, loads
from dodona_ytsaurus.yt_json import JsonRowReader, loads_json
from pyspark_dodona.option_values import key_range

# ---- the check itself


Draw = Callable[[Any], Any]


class Members(list[tuple[str, Any]]):
    """Of an object, some of which may have one name."""


names = st.sampled_from(["a", "b", "a:", "é", '"', "\\", ":"])
values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | names,
    lambda it: st.lists(it, max_size=3) | st.lists(st.tuples(names, it), max_size=3).map(Members),
    max_leaves=8,
)
spaces = st.sampled_from(["", " ", "\n\t"])


def is_repeated(value: Any) -> bool:
    if isinstance(value, Members):
        its = [name for name, _ in value]
        return len(set(its)) < len(its) or any(is_repeated(it) for _, it in value)
    return isinstance(value, list) and any(map(is_repeated, value))


def text_of(value: Any, draw: Draw) -> str:
    """In JSON, with spaces and escapes as nobody would write them."""
    if isinstance(value, Members):
        its = [f"{text_of(k, draw)}{draw(spaces)}:{text_of(v, draw)}" for k, v in value]
        return "{" + ",".join(its) + "}"
    if isinstance(value, list):
        return "[" + ",".join(text_of(it, draw) for it in value) + "]"
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    for character in ":a":
        if isinstance(value, str) and draw(st.booleans()):
            escape = draw(st.sampled_from(["\\u{:04x}", "\\u{:04X}"])).format(ord(character))
            text = text.replace(character, escape) if "\\" not in text else text
    return f"{draw(spaces)}{text}"


def packed_of(value: Any) -> bytes:
    """In MessagePack, numbers of which may be longer than need be."""
    if isinstance(value, Members):
        its = [packed_of(k) + packed_of(v) for k, v in value]
        return b"\xde" + len(its).to_bytes(2, "big") + b"".join(its)
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(packed_of, value))
    if type(value) is int:
        return bytes(msgpack.packb(float(value % 1000), use_single_float=bool(value & 1)))
    return msgspec.msgpack.encode(value)


@given(value=values, data=st.data())
def test_repeated_names_in_json_are_found_if_and_only_if_they_exist(value: Any, data: Any) -> None:
    raw = text_of(value, data.draw).encode()
    assert bool(repeated_name(raw, msgspec.json.decode(raw))) == is_repeated(value)


@given(value=values)
def test_repeated_names_in_messagepack_are_found_if_and_only_if_they_exist(value: Any) -> None:
    raw = packed_of(value)
    assert bool(repeated_in_packed(raw, msgspec.msgpack.decode(raw))) == is_repeated(value)


def test_a_short_float_hides_no_name() -> None:
    """Packed anew it is four bytes longer: as long as the member that was lost."""
    raw = b"\x82\xa1a\xcc\xff\xa1a\xca\0\0\0\0"
    found = msgspec.msgpack.decode(raw)
    assert len(msgspec.msgpack.encode(found)) == len(raw)
    assert repeated_in_packed(raw, found) == ["a"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a":1,"a":2}', ["a"]),
        ('{"a":1,"\\u0061":2}', ["a"]),
        ('{"a":":","b":1}', []),
        ('{"a":"\\u003a","b":1}', []),
        ('{"a":1,"a":"\\u003A"}', ["a"]),
        ('{"a":"::","a":"\\u003a\\u003a\\u003a"}', ["a"]),
        ('[0,{"x":{"y":[{"z":1,"z":1}]}}]', [1, "x", "y", 0, "z"]),
        ('"a:a:a"', []),
        ("[1,2]", []),
        ('{"a":":","b":' + "1" * 400 + ',"c":"\\u003a"}', []),
    ],
)
def test_the_place_of_a_name(text: str, place: list[str | int]) -> None:
    assert repeated_name(text.encode(), msgspec.json.decode(text)) == place
    if place:
        with pytest.raises(SchemaViolation, match=f"'{place[-1]}' is named twice"):
            decode_json(text)


# ---- every way in

ROW = '{"k":5,"v":"first","v":"second"}'
INNER = '{"k":5,"v":{"x":1,"x":2}}'


@pytest.mark.parametrize("row", [ROW, INNER])
def test_lines_of_json(row: str) -> None:
    with pytest.raises(SchemaViolation, match="is named twice") as refused:
        LinesOfJson().feed(f'{{"k":4}}\n{row}\n'.encode())
    assert refused.value.attributes == {"column": "v", "row_index": 1}


@pytest.mark.parametrize("row", [ROW, INNER])
def test_packed_rows(row: str) -> None:
    members = json.loads(row, object_pairs_hook=Members)
    with pytest.raises(SchemaViolation, match="is named twice") as refused:
        PackedRows().feed(packed_of(Members([("k", 4)])) + packed_of(members))
    assert refused.value.attributes == {"column": "v", "row_index": 1}


@pytest.mark.parametrize("row", [ROW, INNER])
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_rows_in_a_body(form: Any, row: str) -> None:
    text = f'{{"table":"//t","rows":[{{"k":4}},{row}]}}'
    body = text.encode()
    if form == "msgpack":
        body = packed_of(json.loads(text, object_pairs_hook=Members))
    with pytest.raises(SchemaViolation, match="is named twice") as refused:
        decode_body(body, form, InsertRows)
    assert refused.value.attributes == {"column": "v", "row_index": 1}


def test_reserved_names_in_a_body_change_nothing() -> None:
    text = f'{{"table":"//t","rows":[{{"k":{{"$double":"NaN"}}}},{ROW}]}}'
    with pytest.raises(SchemaViolation, match="'v' is named twice"):
        decode_body(text.encode(), "json", InsertRows)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_field_of_a_body(form: Any) -> None:
    text = '{"table":"//a","keys":[{"k":1}],"table":"//b"}'
    body = text.encode()
    if form == "msgpack":
        body = packed_of(json.loads(text, object_pairs_hook=Members))
    with pytest.raises(SchemaViolation, match="'table' is named twice in one object"):
        decode_body(body, form, LookupRows)


def test_a_value_in_csv() -> None:
    with pytest.raises(SchemaViolation, match="'x' is named twice") as refused:
        value_of_text(Column("v", "any"), '{"x":1,"x":2}')
    assert refused.value.attributes["column"] == "v"


def test_ends_of_a_range() -> None:
    with pytest.raises(SchemaViolation, match="'\\$base64' is named twice"):
        parse_bound("lower", '[{"$base64":"","$base64":"YQ=="}]')
    with pytest.raises(InvalidRequest, match="'lower' is named twice"):
        key_range("key_range", '{"lower":[1],"lower":[2]}')


@pytest.mark.parametrize("row", [ROW, INNER])
def test_rows_in_the_json_of_ytsaurus(row: str) -> None:
    with pytest.raises(InvalidRequest, match="is named twice") as refused:
        JsonRowReader().feed(f'{{"k":4}}\n{row}\n'.encode())
    assert refused.value.attributes["row"] == 1
    with pytest.raises(InvalidRequest, match="is named twice"):
        loads_json(row.encode())


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("row", [b"{k=5;v=1;v=2}", b'{k=5;"\\x76"=1;v={x=1;x=2}}'])
def test_rows_in_yson(row: bytes, count: int) -> None:
    plain = b"{k=4;v=1};" * count
    with pytest.raises(InvalidRequest, match=r"the map has the key '[vx]' twice") as refused:
        RowReader().feed(plain + row + b";")
    assert len(plain) < refused.value.attributes["offset"] < len(plain) + len(row)


@pytest.mark.parametrize("text", [b"{a=1;a=2}", b"<a=1;a=2>x", b"{\x01\x02a=1;a=2}"])
def test_values_in_yson(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="the map has the key 'a' twice"):
        loads(text)


def test_parameters() -> None:
    for content, is_json in ((b'{"path":"//a","path":"//b"}', True), (b"{path=a;path=b}", False)):
        with pytest.raises(InvalidRequest, match="'path'"):
            decode_parameters(content, is_json=is_json)
