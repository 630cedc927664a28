"""Whatever comes in as YSON or JSON: a value, or an error that says where; and in little time.

The hostile inputs are those that make a careless reader slow, large or deeply nested. Time is that
of the processor, and a quadratic reader would take a hundred times what is allowed.
"""

import functools
import time
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import Format, Kind, RowReader, YsonLimits, dumps, loads
from dodona_ytsaurus.yson.limits import DEPTH_MAX
from dodona_ytsaurus.yt_json import JsonRowReader, dumps_json, loads_json
from unit.ytsaurus.yson.shapes import VALUES

MUTANTS = 4_000
SEEDS = range(4)
HOSTILE_BYTES = 1 << 20
CPU_S_MAX = 10.0
"""For each hostile input; a fast machine takes less than half a second."""
BYTES_PER_VALUE_MAX = 250
BYTES_PER_BYTE_MAX = 12
"""Of memory, for each byte of input: the parts, the buffer, the strings, before and after."""

KINDS: list[Kind] = ["node", "list_fragment", "map_fragment"]
SAMPLE = {
    "key": [1, -(1 << 63), 1 << 63, 0.5, float("nan"), None, True, b'\x00\xff"\\', "é"],
    "é": {"nested": [[{}], {"a": [b"x" * 40]}]},
}
ROWS = [{"key": n, "text": b"x" * (n % 5), "double": n / 7} for n in range(12)]


def read_in_parts(reader: RowReader | JsonRowReader, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    reader.finish()


def error_of(read: Callable[[], Any]) -> InvalidRequest | None:
    """The one error that there may be."""
    try:
        read()
    except InvalidRequest as error:
        return error
    return None


def check_all_readers(data: bytes) -> None:
    for kind in KINDS:
        error = error_of(functools.partial(loads, data, kind=kind))
        assert error is None or 0 <= error.attributes["offset"] <= len(data)
    for size in (1, 5, len(data) + 1):
        error = error_of(functools.partial(read_in_parts, RowReader(), data, size))
        assert error is None or 0 <= error.attributes["offset"] <= len(data)
        error = error_of(functools.partial(read_in_parts, JsonRowReader(), data, size))
        assert error is None or error.attributes["row"] >= 0


@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check_all_readers(data)


@given(value=VALUES, at=st.integers(0, 100), insert=st.binary(max_size=3), remove=st.integers(0, 3))
def test_any_value_with_any_damage(value: Any, at: int, insert: bytes, remove: int) -> None:
    for format in ("binary", "text", "pretty"):
        data = dumps(value, format)
        check_all_readers(data[:at] + insert + data[at + remove :])


FORMATS: list[Format] = ["binary", "text", "pretty"]
SOURCES = [
    *[dumps(SAMPLE, format) for format in FORMATS],
    *[dumps(ROWS, format, kind="list_fragment") for format in FORMATS],
    dumps_json({"a": [1, None, "é", {"$b": b"\xff"}]}),
]


def mutants(random: Random, count: int) -> Iterator[bytes]:
    interesting = bytes(range(8)) + b'[]{}<>;=#%"\\ \x80\xff09eu'
    for _ in range(count):
        data = bytearray(random.choice(SOURCES))
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(data) + 1)
            match random.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([random.choice(interesting)])
                case 1:
                    data[at : at + random.randrange(1, 9)] = b""
                case 2:
                    start = random.randrange(len(data) + 1)
                    data[at:at] = data[start : start + random.randrange(1, 40)]
                case 3 if at < len(data):
                    data[at] ^= 1 << random.randrange(8)
        yield bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_mutants(seed: int) -> None:
    for data in mutants(Random(seed), MUTANTS // len(SEEDS)):
        check_all_readers(data)


def times(piece: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    return before + piece * (HOSTILE_BYTES // len(piece)) + after


HOSTILE: dict[str, bytes] = {
    "lists that open": times(b"["),
    "maps that open": times(b"{a="),
    "attributes that open": times(b"<a="),
    "lists in a list": times(b"[];", b"[", b"]"),
    "maps in a list": times(b"{aa=#};", b"[", b"]"),
    "entities": times(b"#;", b"[", b"]"),
    "empty attributes": times(b"<>#;", b"[", b"]"),
    "attributes": times(b"<aa=#>#;", b"[", b"]"),
    "binary strings": times(b"\x01\x00;", b"[", b"]"),
    "integers": times(b"\x06\x80\x80\x01;", b"[", b"]"),
    "one key": times(b"a=#;", b"{", b"}"),
    "keys": b"{" + b"".join(b"k%d=#;" % n for n in range(HOSTILE_BYTES // 10)) + b"}",
    "spaces": times(b" "),
    "spaces in a list": times(b" " * 1000 + b"1;", b"[", b"]"),
    "a varint": times(b"\x80", b"\x02"),
    "the length of a string": b"\x01" + b"\xfe" * 9 + b"\x01",
    "digits": times(b"1"),
    "long doubles": times(b"1." + b"1" * 500 + b";", b"[", b"]"),
    "a word": times(b"a"),
    "percents": times(b"%"),
    "quotes": times(b'"'),
    "an open string": times(b"a", b'"'),
    "an open string of escapes": times(b"\\n", b'"'),
    "backslashes": times(b"\\", b'"'),
    "escapes": times(b"\\n", b'"', b'"'),
    "hexadecimal escapes": times(b"\\xF", b'"', b'"'),
    "surrogates": times(rb"\ud83d", b'"', b'"'),
    "rows of other columns": b"".join(
        b"{\x01\x06%03d=#;};" % (n // 8 % 1000) for n in range(HOSTILE_BYTES // 10)
    ),
    "rows of which each is unusual": times(b"{\x01\x02a=\x01\x02b;};" * 9 + b"{\x01\x02a=[];};"),
    "braces of JSON": times(b'{"a":'),
    "values of JSON": times(b"[],", b"[", b"0]"),
    "lines of JSON": times(b"0\n"),
}


def readings(data: bytes, limits: YsonLimits) -> list[Callable[[], Any]]:
    return [
        lambda: loads(data, limits, strings="text"),
        lambda: loads(data, limits, kind="list_fragment"),
        lambda: read_in_parts(RowReader(limits), data, 61),
        lambda: loads_json(data, limits=limits),
        lambda: read_in_parts(JsonRowReader(limits=limits), data, 61),
    ]


@pytest.mark.slow("megabytes of nesting")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_takes_little_time(name: str) -> None:
    for read in readings(HOSTILE[name], YsonLimits(values_max=200_000)):
        began_s = time.process_time()
        error_of(read)
        assert time.process_time() - began_s < CPU_S_MAX


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_takes_little_memory(name: str) -> None:
    limits = YsonLimits(values_max=10_000)
    data = HOSTILE[name][: HOSTILE_BYTES // 16]
    most = limits.values_max * BYTES_PER_VALUE_MAX + len(data) * BYTES_PER_BYTE_MAX
    for read in readings(data, limits):
        tracemalloc.start()
        error_of(read)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most


def test_one_byte_at_a_time() -> None:
    """An item of this length, copied for each byte, would be a hundred gigabytes."""
    item = b'"' + b"x" * (HOSTILE_BYTES // 2) + b'"'
    began_s = time.process_time()
    read_in_parts(RowReader(), item + b";", 1)
    read_in_parts(JsonRowReader(), item + b"\n", 1)
    assert time.process_time() - began_s < CPU_S_MAX


def test_a_caller_that_is_deep_itself() -> None:
    """The deepest value that may be allowed takes some hundred calls."""
    limits = YsonLimits(depth_max=DEPTH_MAX)
    brackets = [(b"[", b"]"), (b"{a=", b"}"), (b"<a=", b">1"), (b"<a=1>{a=", b"}")]
    values = [before * DEPTH_MAX + b"1" + after * DEPTH_MAX for before, after in brackets]

    def called(depth: int) -> None:
        if depth:
            called(depth - 1)
            return
        for data in values:
            value = loads(data, limits)
            dumps(value, "pretty")
            loads_json(dumps_json(value), limits=limits)
        with pytest.raises(LimitExceeded):
            loads(b"[" * (DEPTH_MAX + 1), limits)

    called(200)
