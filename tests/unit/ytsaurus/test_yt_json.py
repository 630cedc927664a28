"""JSON in YTsaurus's form: what strings, attributes, keys and numbers become, both ways."""

import json
import math
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import Attributed, Uint64, YsonLimits
from dodona_ytsaurus.yt_json import (
    JsonOptions,
    JsonRowReader,
    dump_rows_json,
    dumps_json,
    loads_json,
)
from unit.ytsaurus.yson.shapes import exact

UNICODE = JsonOptions(encode_utf8=False)

BOTH_WAYS: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (-1, -1),
    (-(1 << 63), -(1 << 63)),
    (Uint64((1 << 64) - 1), (1 << 64) - 1),
    (0.5, 0.5),
    (1.0, 1.0),
    (b"a", "a"),
    ("Ж".encode(), "\u00d0\u0096"),
    (b"\xff\x00", "\u00ff\u0000"),
    ([1, [b"a"]], [1, ["a"]]),
    ({"a": {}, "Ж": b"\xff"}, {"a": {}, "\u00d0\u0096": "\u00ff"}),
    ({"$timestamp:value": 5, "$$": 1, "a$": 2}, {"$$timestamp:value": 5, "$$$": 1, "a$": 2}),
    (Attributed(b"x", {"é": 1}), {"$attributes": {"Ã©": 1}, "$value": "x"}),
    (
        Attributed({"k": 1, "v": [Attributed(None, {"timestamp": 5})]}, {"$": [5]}),
        {
            "$attributes": {"$$": [5]},
            "$value": {"k": 1, "v": [{"$attributes": {"timestamp": 5}, "$value": None}]},
        },
    ),
]


@pytest.mark.parametrize(("value", "plain"), BOTH_WAYS)
def test_both_ways(value: Any, plain: Any) -> None:
    written = dumps_json(value)
    assert json.loads(written) == plain
    assert exact(loads_json(written)) == exact(value)
    assert exact(loads_json(json.dumps(plain).encode())) == exact(value)


def test_strings_that_stand_for_themselves() -> None:
    value = {"Ж": ["é".encode(), Attributed(b"Z", {"Ж": b""})]}
    plain = {"Ж": ["é", {"$attributes": {"Ж": ""}, "$value": "Z"}]}
    assert json.loads(dumps_json(value, UNICODE)) == plain
    assert loads_json(json.dumps(plain).encode(), UNICODE) == value


@pytest.mark.parametrize("options", [JsonOptions(), UNICODE])
def test_text_is_utf8(options: JsonOptions) -> None:
    value = {"Ж": "é", "a": ["b"]}
    written = dumps_json(value, options)
    assert written == dumps_json({"Ж".encode(): "é".encode(), b"a": [b"b"]}, options)
    assert loads_json(written, options, strings="text") == value


def test_mangled_bytes_that_are_no_utf8_stay_bytes() -> None:
    assert loads_json(b'"\\u00ff"', strings="text") == b"\xff"


def test_uint64_small_enough_is_an_integer_like_others() -> None:
    assert dumps_json([Uint64(5)]) == b"[5]"
    assert exact(loads_json(b"[5]")) == exact([5])


def test_attributes_that_are_none_are_left_out() -> None:
    assert dumps_json(Attributed(1, {})) == b"1"
    assert loads_json(b'{"$value": 1}') == 1
    assert loads_json(b'{"$value": 1, "$attributes": {}}') == 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_without_a_form(number: float) -> None:
    with pytest.raises(InvalidRequest, match="stringify_nan_and_infinity"):
        dumps_json({"a": [number]})
    written = dumps_json({"a": [number]}, JsonOptions(stringify_nan_and_infinity=True))
    assert written == b'{"a":["%s"]}' % str(number).encode()


@pytest.mark.parametrize(
    ("type", "spelt", "value"),
    [
        ("uint64", "5", Uint64(5)),
        ("uint64", '"18446744073709551615"', Uint64((1 << 64) - 1)),
        ("int64", '"-5"', -5),
        ("int64", "5", 5),
        ("double", "5", 5.0),
        ("double", '"nan"', math.nan),
        ("double", '"1e5"', 1e5),
        ("boolean", '"true"', True),
        ("boolean", "false", False),
        ("string", '"5"', b"5"),
    ],
)
def test_a_json_value_can_name_its_type(type: str, spelt: str, value: Any) -> None:
    told = f'{{"$type": "{type}", "$value": {spelt}}}'.encode()
    assert exact(loads_json(told)) == exact(value)
    with_attributes = told[:-1] + b', "$attributes": {"a": 1}}'
    assert exact(loads_json(with_attributes)) == exact(Attributed(value, {"a": 1}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nul",
        b"1 2",
        b"NaN",
        b"[1,]",
        b'"\xff"',
        b'"\\ud800"',
        b"18446744073709551616",
        b"-9223372036854775809",
        b"1e400",
        '"Ж"'.encode(),
        '{"Ж": 1}'.encode(),
        b'{"\\u00ff": 1}',
        b'{"$a": 1}',
        b'{"$attributes": {"a": 1}}',
        b'{"$attributes": [], "$value": 1}',
        b'{"$attributes": {"$value": 1}, "$value": 1}',
        b'{"$value": {"$value": 1}}',
        b'{"$value": 1, "a": 2}',
        b'{"$value": 1, "$type": "int32"}',
        b'{"$value": 1, "$type": null}',
        b'{"$value": 1, "$type": "string"}',
        b'{"$value": 1.5, "$type": "int64"}',
        b'{"$value": true, "$type": "int64"}',
        b'{"$value": true, "$type": "double"}',
        b'{"$value": "1_0", "$type": "int64"}',
        b'{"$value": " 1", "$type": "uint64"}',
        b'{"$value": "-1", "$type": "uint64"}',
        b'{"$value": "9223372036854775808", "$type": "int64"}',
        b'{"$value": "yes", "$type": "boolean"}',
        b'{"$value": null, "$type": "double"}',
        b'{"$value": [1], "$type": "boolean"}',
    ],
)
def test_invalid_json_in_the_form_of_ytsaurus_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        loads_json(b'{"outer": [' + data + b"]}" if data else data)
    assert type(caught.value) is InvalidRequest


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (b"\xff", UNICODE),
        ({b"\xff": 1}, UNICODE),
        ("\ud800", UNICODE),
        ("\ud800", JsonOptions()),
        (1 << 64, JsonOptions()),
        (-(1 << 63) - 1, JsonOptions()),
        ({1: 2}, JsonOptions()),
        (object(), JsonOptions()),
        (Attributed(Attributed(1, {}), {}), JsonOptions()),
    ],
)
def test_what_cannot_be_written_is_refused(value: Any, options: JsonOptions) -> None:
    with pytest.raises(InvalidRequest):
        dumps_json([value], options)


@pytest.mark.parametrize("depth", [65, 100_000])
@pytest.mark.parametrize(
    "nest", [(b"[", b"]"), (b'{"a":', b"}"), (b'{"$attributes":{"a":', b'},"$value":1}')]
)
def test_nesting_is_limited(depth: int, nest: tuple[bytes, bytes]) -> None:
    loads_json(nest[0] * 64 + b"1" + nest[1] * 64)
    with pytest.raises(LimitExceeded, match="nested deeper than 64"):
        loads_json(nest[0] * depth + b"1" + nest[1] * depth)


def test_json_over_the_limits_of_values_or_bytes_is_refused() -> None:
    loads_json(b'{"a":[1,2]}', limits=YsonLimits(values_max=3, bytes_max=11))
    with pytest.raises(LimitExceeded, match="more than 2 values"):
        loads_json(b'{"a":[1,2]}', limits=YsonLimits(values_max=2))
    with pytest.raises(LimitExceeded, match="more than 10 bytes"):
        loads_json(b'{"a":[1,2]}', limits=YsonLimits(bytes_max=10))


def test_a_value_inside_of_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(Attributed(loop, {"a": loop}))
    with pytest.raises(LimitExceeded):
        dumps_json(loop)


ROWS: list[Any] = [{"k": n, "é": b"\xff" * n} for n in range(20)] + [None, Attributed({}, {"a": 1})]


def feed(reader: JsonRowReader, data: bytes, size: int) -> list[Any]:
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return [row for part in parts for row in reader.feed(part)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 20])
def test_rows_are_lines(size: int) -> None:
    data = dump_rows_json(ROWS)
    assert data.count(b"\n") == len(ROWS)
    for lines in (data, data[:-1], b"\n\r\n" + data.replace(b"\n", b"\r\n \n")):
        reader = JsonRowReader()
        assert exact(feed(reader, lines, size) + reader.finish()) == exact(ROWS)


def test_an_invalid_json_row_is_reported_with_its_number() -> None:
    reader = JsonRowReader()
    assert reader.feed(b'{"a":1}\n{"a"') == [{"a": 1}]
    with pytest.raises(InvalidRequest) as caught:
        reader.feed(b":2}\n\n{\n")
    assert caught.value.attributes == {"row": 2}
    with pytest.raises(AssertionError):
        reader.finish()


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("limits", [YsonLimits(items_max=9), YsonLimits(bytes_max=100)])
def test_rows_are_limited(size: int, limits: YsonLimits) -> None:
    data = b'{"a":1}\n' * 9
    reader = JsonRowReader(limits=limits)
    assert len(reader.feed(data)) == 9
    excess = b'{"a":1}\n' if limits.items_max == 9 else b'"' + b"x" * 100 + b'"\n'
    with pytest.raises(LimitExceeded) as caught:
        feed(reader, excess, size)
    assert caught.value.attributes == {"row": 9}


def test_a_json_line_over_the_limit_is_refused_before_the_line_ends() -> None:
    reader = JsonRowReader(limits=YsonLimits(bytes_max=100))
    assert reader.feed(b"x" * 100) == []
    with pytest.raises(LimitExceeded, match="more than 100 bytes"):
        reader.feed(b"x")
