"""What YSON means, form by form, and what is no YSON at all."""

import math
import struct
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import Attributed, Kind, Uint64, YsonLimits, loads
from unit.ytsaurus.yson.shapes import exact

SCALARS: list[tuple[bytes, Any]] = [
    (b"1", 1),
    (b"+1", 1),
    (b"-1", -1),
    (b"007", 7),
    (b"-9223372036854775808", -(1 << 63)),
    (b"9223372036854775807", (1 << 63) - 1),
    (b"5u", Uint64(5)),
    (b"+5u", Uint64(5)),
    (b"18446744073709551615u", Uint64((1 << 64) - 1)),
    (b"1.5", 1.5),
    (b"1.", 1.0),
    (b"-.5", -0.5),
    (b"1e5", 1e5),
    (b"1.E+5", 1e5),
    (b"-0.", -0.0),
    (b"1e999", math.inf),
    (b"%nan", math.nan),
    (b"%inf", math.inf),
    (b"%+inf", math.inf),
    (b"%-inf", -math.inf),
    (b"%true", True),
    (b"%false", False),
    (b"#", None),
    (b"abc", b"abc"),
    (b"_a-b.c%d9", b"_a-b.c%d9"),
    (b"nan", b"nan"),
    (b"\x01\x06abc", b"abc"),
    (b"\x01\x00", b""),
    (b"\x02\x02", 1),
    (b"\x02\x01", -1),
    (b"\x02\x82\x00", 1),
    (b"\x02" + b"\xff" * 9 + b"\x01", -(1 << 63)),
    (b"\x03" + struct.pack("<d", -2.5), -2.5),
    (b"\x04", False),
    (b"\x05", True),
    (b"\x06\x01", Uint64(1)),
    (b"\x06" + b"\xff" * 9 + b"\x01", Uint64((1 << 64) - 1)),
]
QUOTED: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"a b;]\n\xff\x00", b"a b;]\n\xff\x00"),
    (rb"\"\\\n\t\r\a\b\f\v", b'"\\\n\t\r\a\b\f\v'),
    (rb"\x41\x4\xfF\x414\xg\x", b"A\x04\xffA4xgx"),
    (rb"\101\0\08\1234\377\400\777\8", b"A\x00\x008S4\xff 0?78"),
    (rb"\u0416\u041\U0001F600\ud83d\ude00\ud83d", "Жu041😀😀".encode() + b"\xed\xa0\xbd"),
    (rb"\q\e\X\'\?", b"qeX'?"),
]
HOLDERS: list[tuple[bytes, Any]] = [
    (b"[]", []),
    (b"[ ]", []),
    (b"[1;2]", [1, 2]),
    (b"[1;2;]", [1, 2]),
    (b" [ 1 ; [ ] ; { } ; ] ", [1, [], {}]),
    (b"{}", {}),
    (b"{ }", {}),
    (b"{a=1;b=2}", {"a": 1, "b": 2}),
    (b"\t{ a = 1 ;\r\n\v\f\"b\" =2 ; \x01\x02c=\x02\x06; } ", {"a": 1, "b": 2, "c": 3}),
    ('{"é"=#;""=1}'.encode(), {"é": None, "": 1}),
    (b"<a=1>2", Attributed(2, {"a": 1})),
    (b"< a = <b=#;>1 ; > { c = <d=[]> [] }", Attributed(
        {"c": Attributed([], {"d": []})}, {"a": Attributed(1, {"b": None})}
    )),
    (b"<>1", 1),
    (b"[<a=1>#;\x05]", [Attributed(None, {"a": 1}), True]),
    (b"[\x01\x02a;\"b\";c;\x02\x02;1]", [b"a", b"b", b"c", 1, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value"), [*SCALARS, *HOLDERS])
def test_a_value_is_read(data: bytes, value: Any) -> None:
    assert exact(loads(data)) == exact(value)
    assert exact(loads(memoryview(b" \n" + data + b"\t "))) == exact(value)


@pytest.mark.parametrize(("inside", "value"), QUOTED)
def test_a_quoted_string_is_read(inside: bytes, value: bytes) -> None:
    assert loads(b'"' + inside + b'"') == value


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("list_fragment", b"", []),
        ("list_fragment", b" \n", []),
        ("list_fragment", b"1;2", [1, 2]),
        ("list_fragment", b" 1 ; 2 ; ", [1, 2]),
        ("list_fragment", b"<a=1>{};{a=1}", [Attributed({}, {"a": 1}), {"a": 1}]),
        ("map_fragment", b"", {}),
        ("map_fragment", b"a=1;b=2", {"a": 1, "b": 2}),
        ("map_fragment", b' "a" = 1 ; ', {"a": 1}),
    ],
)
def test_a_fragment_is_read(kind: Kind, data: bytes, value: Any) -> None:
    assert exact(loads(data, kind=kind)) == exact(value)


def test_strings_become_text_where_they_are_utf8() -> None:
    data = b'{"\xc3\xa9"=<a="\xc3\xa9">"\xc3\xa9";b=\x01\x02\xff;c=["x";y;\x01\x02z]}'
    assert loads(data, strings="text") == {
        "é": Attributed("é", {"a": "é"}),
        "b": b"\xff",
        "c": ["x", "y", "z"],
    }
    assert loads(data)["c"] == [b"x", b"y", b"z"]


def test_uint64_may_be_plain() -> None:
    assert exact(loads(b"[5u;\x06\x05]", keeps_uint64=False)) == exact([5, 5])


BROKEN: list[tuple[bytes, int, str]] = [
    (b"", 0, "ends too early"),
    (b" ", 1, "ends too early"),
    (b"1 2", 2, "'2' after the end of the value"),
    (b"1;", 1, "';' after the end of the value"),
    (b"1\x00", 1, "'\\x00' after the end"),
    (b"\x00", 0, "'\\x00' where a value should be"),
    (b"\x07", 0, "where a value should be"),
    (b"\xef\xbb\xbf1", 0, "where a value should be"),
    (b"$a", 0, "where a value should be"),
    (b".5", 0, "where a value should be"),
    (b"a/b", 1, "'/' after the end"),
    (b"a+b", 1, "'+' after the end"),
    (b"[a+b]", 2, "'+' where ; should be"),
    (b"[;]", 1, "';' where a value should be"),
    (b"[1;;2]", 3, "';' where a value should be"),
    (b"[1,2]", 2, "',' where ; should be"),
    (b"[1 2]", 3, "'2' where ; should be"),
    (b"[1;2", 4, "ends too early"),
    (b"[1}", 2, "'}' where ; should be"),
    (b"{a}", 2, "'}' where = should be"),
    (b"{a=}", 3, "'}' where a value should be"),
    (b"{1=2}", 1, "'1' where a key should be"),
    (b"{#=2}", 1, "'#' where a key should be"),
    (b"{a=1;a=2}", 5, "the map has the key 'a' twice"),
    (b"{;}", 1, "';' where a key should be"),
    (b"{a=1;", 5, "ends too early"),
    (b'{"\xff"=1}', 1, "a key is not valid UTF-8"),
    (b"<a=1>", 5, "ends too early"),
    (b"<a=1", 4, "ends too early"),
    (b"<a=1> <b=2>1", 6, "a value has attributes twice"),
    (b"<><>1", 2, "a value has attributes twice"),
    (b"{<a=1>k=1}", 1, "'<' where a key should be"),
    (b"[<a=1>;1]", 6, "';' where a value should be"),
    (b"--1", 0, "'--1' is not a number"),
    (b"+", 0, "'+' is not a number"),
    (b"1e", 0, "'1e' is not a number"),
    (b"1..5", 0, "'1..5' is not a number"),
    (b"1.5u", 0, "'1.5u' is not a number"),
    (b"5u5", 0, "'5u5' is not a number"),
    (b"1_0", 1, "'_' after the end"),
    (b"-1u", 0, "it is unsigned and has a minus"),
    (b"9223372036854775808", 0, "too large for an int64"),
    (b"-9223372036854775809", 0, "too large for an int64"),
    (b"18446744073709551616u", 0, "too large for a uint64"),
    (b"1" * 5000, 0, "more than 512 bytes"),
    (b"0." + b"1" * 600, 0, "more than 512 bytes"),
    (b"%tru", 0, "'%tru' is not a literal"),
    (b"%", 0, "'%' is not a literal"),
    (b"%-nan", 0, "'%-nan' is not a literal"),
    (b'"abc', 4, "ends too early"),
    (b'"abc\\', 5, "ends too early"),
    (b'"abc\\"', 6, "ends too early"),
    (rb'["";"a\U00110000"]', 6, "'\\\\U00110000' is not a character"),
    (b"\x01\x06ab", 4, "ends too early"),
    (b"\x01\x01", 1, "a string of -1 bytes"),
    (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, "a string of -9223372036854775808 bytes"),
    (b"\x02", 1, "ends too early"),
    (b"\x02\x80", 2, "ends too early"),
    (b"\x02" + b"\xff" * 9 + b"\x02", 10, "more than 64 bits"),
    (b"\x02" + b"\x80" * 10 + b"\x01", 11, "more than ten bytes"),
    (b"\x03" + bytes(7), 8, "ends too early"),
    (b"]", 0, "where a value should be"),
]


@pytest.mark.parametrize(("data", "offset", "says"), BROKEN)
def test_invalid_yson_is_refused_with_its_offset(data: bytes, offset: int, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        loads(data)
    assert (type(caught.value), caught.value.attributes) == (InvalidRequest, {"offset": offset})
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("kind", "data", "offset"),
    [
        ("list_fragment", b";", 0),
        ("list_fragment", b"1;;2", 2),
        ("list_fragment", b"1 2", 2),
        ("list_fragment", b"{a=1}{b=2}", 5),
        ("list_fragment", b"1;]", 2),
        ("list_fragment", b"1;<a=1>", 7),
        ("map_fragment", b";", 0),
        ("map_fragment", b"a", 1),
        ("map_fragment", b"a=1}", 3),
        ("map_fragment", b"<a=1>b=2", 0),
    ],
)
def test_an_invalid_yson_fragment_is_refused_with_its_offset(
    kind: Kind, data: bytes, offset: int
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        loads(data, kind=kind)
    assert caught.value.attributes == {"offset": offset}


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: b"[" * depth + b"]" * depth,
        lambda depth: b"{a=" * depth + b"1" + b"}" * depth,
        lambda depth: b"<a=" * depth + b"1" + b">1" * depth,
        lambda depth: b"<a=1>[" * depth + b"]" * depth,
    ],
)
@pytest.mark.parametrize("depth_max", [1, 64, 100])
def test_yson_nests_up_to_the_depth_limit_and_no_deeper(nested: Any, depth_max: int) -> None:
    limits = YsonLimits(depth_max=depth_max)
    loads(nested(depth_max), limits)
    for depth in (depth_max + 1, 100_000):
        with pytest.raises(LimitExceeded, match=f"nested deeper than {depth_max}"):
            loads(nested(depth), limits)


@pytest.mark.parametrize("data", [b"[1;2;3]", b"{a=1;b=2;c=3}", b"<a=[1]>{b=2}", b"[[[]]; []]"])
def test_values_are_counted_at_all_levels(data: bytes) -> None:
    loads(data, YsonLimits(values_max=3))
    with pytest.raises(LimitExceeded, match="more than 2 values") as caught:
        loads(data, YsonLimits(values_max=2))
    assert 0 < caught.value.attributes["offset"] <= len(data)


def test_the_length_is_limited() -> None:
    loads(b"[1;2]", YsonLimits(bytes_max=5))
    with pytest.raises(LimitExceeded, match="more than 4 bytes"):
        loads(b"[1;2]", YsonLimits(bytes_max=4))


def test_limits_have_limits() -> None:
    for wrong in ({"depth_max": 101}, {"depth_max": 0}, {"values_max": 0}, {"bytes_max": -1}):
        with pytest.raises(InvalidRequest):
            YsonLimits(**wrong)
